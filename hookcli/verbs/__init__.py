"""The verbs, one module each: the options that only this verb has, its function, its outcome.

A verb is a public function, and a command of the same name. It prints nothing and never exits.
"""
