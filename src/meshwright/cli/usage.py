"""What cyclopts says of a wrong command line, as our own InputError: translated, one message, a did-you-mean."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from cyclopts import exceptions as cy

from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _

#: What people type from habit: another command's flag, or another tool's word for the same.
MEANT = {
    "--layout": ("--fix",),
    "--fix": ("--layout",),
    "--from": ("--plan",),
    "--gpus": ("--cluster",),
    "--nodes": ("--cluster",),
    "--batch-size": ("--global-batch",),
    "--global-batch-size": ("--global-batch",),
    "--seq-length": ("--seq-len",),
    "--sequence-length": ("--seq-len",),
    "--dtype": ("--precision",),
    "--memory": ("--max-memory",),
}


def input_error(error: cy.CycloptsError, commands: Sequence[str]) -> InputError:
    """The InputError (MW-E100..MW-E105) for a usage error of cyclopts; ``commands`` are known for a did-you-mean."""
    command = " ".join(error.command_chain or ())
    see = _("See `mw {command} --help`.").format(command=command) if command else _("See `mw --help`.")
    match error:
        case cy.UnknownCommandError():
            name = (error.unused_tokens or [""])[0]
            message, nearest = _("'{name}' is not a command.").format(name=name), did_you_mean(name, commands, show=9)
            return InputError("MW-E100", message, where="mw", nearest=nearest)
        case cy.UnknownOptionError():
            return _unknown_option(error, command, see)
        case cy.MissingArgumentError():
            return _missing(error, command, see)
        case cy.CoercionError():
            return _bad_value(error, command, see)
    return _misplaced(error, command, see)


def _unknown_option(error: cy.UnknownOptionError, command: str, see: str) -> InputError:
    name = (error.token.keyword or error.token.value).partition("=")[0]
    known = [flag for argument in error.argument_collection for flag in argument.names if flag.startswith("--")]
    meant = next((flag for flag in MEANT.get(name, ()) if flag in known), None)
    if meant:
        nearest = _("Did you mean {name}?").format(name=meant)
    else:
        nearest = did_you_mean(name, known) if _is_close(name, known) else see
    return InputError("MW-E101", _("'{name}' is not an option.").format(name=name), where=command, nearest=nearest)


def _misplaced(error: cy.CycloptsError, command: str, see: str) -> InputError:
    if isinstance(error, cy.RepeatArgumentError):
        message = _("{flag} was given more than once.").format(flag=error.token.keyword or "")
        return InputError("MW-E104", message, where=command, nearest=see)
    if isinstance(error, cy.UnusedCliTokensError | cy.ArgumentOrderError):
        stray = error.token if isinstance(error, cy.ArgumentOrderError) else (error.unused_tokens or [""])[0]
        message = _("'{stray}' belongs to no option.").format(stray=stray)
        nearest = _("A value with spaces needs quotes. {see}").format(see=see)
        return InputError("MW-E105", message, where=command, nearest=nearest)
    return InputError("MW-E103", str(error), where=command or "mw", nearest=see)


def _is_close(name: str, known: Sequence[str]) -> bool:
    return bool(difflib.get_close_matches(name.casefold(), known, n=1, cutoff=0.55))


def _missing(error: cy.MissingArgumentError, command: str, see: str) -> InputError:
    argument = error.argument
    if argument is None:
        return InputError("MW-E102", _("an argument is missing."), where=command, nearest=see)
    flag = next((name for name in argument.names if name.startswith("--")), None)
    if flag is None:
        message = _("{name} is missing.").format(name=argument.name.lstrip("-").upper())
    elif value := _negative_after(flag, error.root_input_tokens or []):
        message = _("'{value}' begins with '-': the value of {flag} must not be negative.").format(
            value=value, flag=flag
        )
        return InputError("MW-E103", message, where=flag, nearest=see)
    elif any(token.keyword for token in argument.tokens) or error.keyword:
        message = _("{flag} needs a value.").format(flag=flag)
    else:
        message = _("{flag} is missing.").format(flag=flag)
    return InputError("MW-E102", message, where=command, nearest=see)


def _negative_after(flag: str, tokens: Sequence[str]) -> str | None:
    """The token after ``flag`` where it looks like a negative value, such as -80GiB, and not like a flag."""
    following = (tokens[i + 1] for i, token in enumerate(tokens[:-1]) if token == flag)
    return next((text for text in following if text[:1] == "-" and text[1:2].isdigit()), None)


def _bad_value(error: cy.CoercionError, command: str, see: str) -> InputError:
    argument, token = error.argument, error.token
    flag = (token.keyword if token else None) or (argument.name if argument else command)
    value = token.value if token else ""
    if error.target_type is int:
        message = _("'{value}' is not a whole number.").format(value=value)
    elif error.target_type is bool:
        message = _("{flag} is a switch: it takes no value ('{value}').").format(flag=flag, value=value)
    else:
        message = _("'{value}' cannot be read.").format(value=value)
    return InputError("MW-E103", message, where=flag, nearest=see)
