"""The verbs: functions such as ``hookcli.inspect``, each also a command of the same name.

The module of a verb has this function, the options that only this verb has, and the class of its
outcome (what the function returns). A verb prints nothing and never ends the process.
"""
