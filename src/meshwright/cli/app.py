"""The command ``meshwright`` (short ``mw``): finds the command, runs it, turns every failure into one clear message.

Commands are registered as import strings with their one-line help, so ``mw --help`` imports none of them.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence

from cyclopts import App, Group
from cyclopts.exceptions import CycloptsError

from meshwright.cli.help_page import HelpPage
from meshwright.cli.terminal import plain_console
from meshwright.cli.usage import input_error
from meshwright.errors import (
    EXIT_BUG,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_OK,
    InputError,
    MeshwrightError,
    did_you_mean,
)
from meshwright.i18n import N_, _, set_language

#: command -> one line of help, in the order of the loop; the function is ``meshwright.cli.<command>:<command>``
COMMANDS = {
    "plan": N_("Search every legal parallel layout of a training job: the fastest that fit, and why."),
    "estimate": N_("One layout: step time, memory, MFU and where the time goes."),
    "fit": N_("Will a model train on these GPUs, and the largest micro-batch, sequence and model that do."),
    "scale": N_("Speed, efficiency and cost over GPU counts: from where on more do not pay off."),
    "compare": N_("Clusters side by side: which is faster, which cheaper, how many GPUs a deadline needs."),
    "explain": N_("What a number, term, rule or error means; why not another layout (--why-not)."),
    "catalog": N_("GPUs, adapters, nodes, models and prices that are known, each value with its source."),
    "validate": N_("Score the predictions against a file of measured runs."),
}
#: What a write fails with where there is no room or no place.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
LANGUAGES = {"en": "en", "zh-CN": "zh_CN"}


def build_app() -> App:
    """The cyclopts application in the language chosen before."""
    epilogue = _(
        "Before or after a command: --lang en|zh-CN, --json (one document), --wide (more than 80 columns).\n"
        "`mw COMMAND --help` shows the flags of a command."
    )
    app = App(
        name="mw",
        help=_("Meshwright, the performance engineer's workbench for GPU clusters."),
        usage=_("mw COMMAND [...]"),
        version=_version,
        help_format="plaintext",
        help_formatter=HelpPage(),
        help_epilogue=f"{epilogue}\n\n{_questions()}",
        group_commands=Group(_("Commands")),
        # Without keys titles are sorted by their letters, which differ between languages.
        group_arguments=Group(_("Arguments"), sort_key=0),
        group_parameters=Group(_("Options"), sort_key=1),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for flag, text in (("--help", _("Show this help.")), ("--version", _("Show the version."))):
        app[flag].help = text
    for place, (command, text) in enumerate(COMMANDS.items()):
        app.command(
            f"meshwright.cli.{command}:{command}", name=command, help=_(text), help_epilogue=epilogue, sort_key=place
        )
    return app


#: What a newcomer asks, and the command that answers it.
QUESTIONS = (
    (N_("Will it train here, and with which micro-batch?"), "mw fit llama-3.1-8b --cluster 8x4090 --seq-len 8192"),
    (N_("Which TP, PP, DP and micro-batch are fastest?"), "mw plan llama-3.1-8b --cluster 8xH100 --out plan.json"),
    (N_("Why not TP 2 and PP 4?"), "mw explain plan.json --why-not tp=2,pp=4"),
    (
        N_("How many GPUs for 10 days, which kind is cheaper?"),
        "mw compare llama-3.1-70b --clusters H100 B200 --deadline 10d",
    ),
    (
        N_("How many days, what does it cost, and a report to show?"),
        "mw plan llama-3.1-8b --cluster 16x8H100 --tokens 2T --report plan.html",
    ),
    (N_("How far do more GPUs pay off?"), "mw scale llama-3.1-70b --cluster H100 --gpus 8..1024"),
)


def _questions() -> str:
    """The questions with their commands, each on lines of its own, so that they can be copied."""
    lines = [_("Questions and the commands that answer them")]
    for question, command in QUESTIONS:
        lines += ["  " + _(question), "    " + command]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``argv`` (the process's own arguments by default) and return the exit status.

    0 fine; 1 the asked-for condition does not hold; 2 wrong input; 3 the environment lacks something; 70 our bug;
    130 interrupted.
    """
    try:
        tokens = _global_flags(list(sys.argv[1:] if argv is None else argv))
        _need_output()
        status = _dispatch(tokens)
        sys.stdout.flush()  # here, where a reader that left can still be met
    except MeshwrightError as error:
        _complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        _drop_output()
        return EXIT_OK
    except Exception as error:  # the last line of defence: no traceback reaches a user by surprise
        return _failed(error)
    return status


def _need_output() -> None:
    """Refuse a closed standard output (`>&-`): the next file that is opened would get its place."""
    if sys.stdout is None:
        raise InputError("MW-E416", _("it is closed."), where=_("standard output"))


def _interrupted() -> int:
    print(_("Interrupted."), file=sys.stderr)
    return EXIT_INTERRUPTED


def _drop_output() -> None:
    # The reader (`mw ... | head`) has what it wanted; without this Python complains again at its own exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(error: BaseException) -> int:
    """The status of what no command expected: Ctrl-C within an import, a full disk behind stdout, else our bug."""
    root = _root(error)
    if isinstance(root, KeyboardInterrupt):
        return _interrupted()
    if isinstance(root, MeshwrightError):
        _complain(root)
        return root.exit_code
    if isinstance(root, OSError) and root.errno in _FULL and root.filename is None:
        _drop_output()
        reason = _("cannot be written: {reason}.").format(reason=root.strerror)
        _complain(InputError("MW-E416", reason, where=_("standard output")))
        return EXIT_INPUT
    _report_bug(root)
    return EXIT_BUG


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:  # cyclopts wraps what went wrong while a command was imported
        error = error.__cause__
    return error


def _global_flags(tokens: list[str]) -> list[str]:
    """Apply and drop ``--lang``; move ``--json`` and ``--wide`` from before the command to its end."""
    tokens, language = _take_language(tokens)
    set_language(language)
    leading = 0
    while leading < len(tokens) and tokens[leading] in ("--json", "--wide"):
        leading += 1
    # Alone they would be an unknown option of the root: `mw --json` then shows the help like `mw`.
    return tokens[leading:] + tokens[:leading] if leading < len(tokens) else []


def _take_language(tokens: list[str]) -> tuple[list[str], str | None]:
    kept: list[str] = []
    language = None
    rest = iter(tokens)
    for token in rest:
        name, equals, value = token.partition("=")
        if name != "--lang":
            kept.append(token)
            continue
        language = value if equals else next(rest, "")
        known = {text.casefold(): text for text in LANGUAGES} | {"zh": "zh-CN"}
        choice = known.get(language.replace("_", "-").casefold())
        if choice is None:
            raise InputError(
                "MW-E106",
                _("'{language}' is not a language of Meshwright.").format(language=language),
                where="--lang",
                nearest=did_you_mean(language, LANGUAGES),
            )
        language = LANGUAGES[choice]
    return kept, language


def _dispatch(tokens: list[str]) -> int:
    app = build_app()
    try:
        status = app(tokens, exit_on_error=False, print_error=False, console=plain_console())
    except CycloptsError as error:
        raise input_error(error, tuple(COMMANDS)) from None
    return status if isinstance(status, int) else EXIT_OK


def _complain(error: MeshwrightError) -> None:
    """One message on stderr: what and where, the nearest right thing, the code to look up."""
    where = "" if error.where is None else f"{error.where}: "
    print(_("error: {text}").format(text=f"{where}{error.message}"), file=sys.stderr)
    if error.nearest:
        print(f"  {error.nearest}", file=sys.stderr)
    print(f"  ({error.code})", file=sys.stderr)


def _report_bug(error: BaseException) -> None:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}:{frame.lineno}"  # noqa: PTH119 - a name for people, not a path
    print(
        _("This is a bug of Meshwright, not of your input: {kind} at {place}: {message}").format(
            kind=type(error).__name__, place=place, message=error
        ),
        file=sys.stderr,
    )
    print(_("Please report it together with the command you typed."), file=sys.stderr)
    if os.environ.get("MESHWRIGHT_DEBUG"):
        traceback.print_exception(error)
    else:
        print(_("MESHWRIGHT_DEBUG=1 shows the traceback."), file=sys.stderr)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow, and rarely asked for

    try:
        return f"meshwright {version('meshwright')}"
    except PackageNotFoundError:  # a checkout on PYTHONPATH that was never installed
        return "meshwright (not installed)"


if __name__ == "__main__":
    raise SystemExit(main())
