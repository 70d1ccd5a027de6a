"""The verbs: functions such as ``hookcli.inspect``, each also a command of the same name.

The module of a verb defines the function, the options that only this verb has, and the class of
what the function returns (its outcome). A verb prints nothing and never ends the process.
"""
