"""What the package promises: every public name with its arguments and defaults, and the options of every command.

The file `golden/api.txt` changes only if users see a difference.
"""

import inspect

import torch_boc
from tests.golden import assert_golden
from tests.test_imports import PARTS
from torch_boc.cli import app


def described(value):
    """The arguments and defaults of a function, or of the methods that a class has of its own."""
    if not inspect.isclass(value):
        return [signature(value)] if callable(value) else []
    if hasattr(value, "_fields"):
        return [f" {' '.join(value._fields)}"]
    methods = {
        name: getattr(value, name) for name, made in vars(value).items() if callable(made) or "method" in repr(made)
    }
    public = {name: x for name, x in methods.items() if name == "__init__" or not name.startswith("_")}
    return [f".{name}{signature(x)}" for name, x in public.items() if callable(x)]


def signature(function):
    """Arguments and defaults, without types."""
    whole = inspect.signature(function)
    bare = [x.replace(annotation=x.empty) for x in whole.parameters.values()]
    return str(whole.replace(parameters=bare, return_annotation=whole.empty))


def test_names_arguments_and_options():
    lines = []
    for part in PARTS:
        module = getattr(torch_boc, part)
        for name in sorted(getattr(module, "__all__", ())):
            lines += [f"{part}.{name}{text}" for text in described(getattr(module, name)) or [""]]
    commands = app.typer.main.get_command(app._app()).commands
    for name, command in commands.items():
        lines += [f"torch-boc {name} {' '.join(x.opts)} = {x.default!r} {x.required}" for x in command.params]
    assert_golden(__file__, {"api.txt": "\n".join(lines) + "\n"})
