"""The work of the commands, as functions: each checks what it is given and returns a result."""
