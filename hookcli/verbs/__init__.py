"""The verbs: one module each, with what only this verb asks, its function, and its outcome.

A verb is a public function, and a command of the same name. It prints nothing and never exits.
"""
