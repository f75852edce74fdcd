"""``rolecall cluster``: the embedded control plane on the command line.

Standard output has only the result, such as the path of a kubeconfig, so that scripts can use it. Progress and errors
go to standard error. Every command works on the control plane with the given name (``default`` if you give none), from
any process of the same user. The exit code is 0 for success and 1 for a failure; ``exec`` exits with the code of its
command.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rolecall.cli.flags import POSITIVE
from rolecall.cli.terminal import INTERRUPTED, interrupted_by_signals
from rolecall.workbench.controlplane import ControlPlane, ControlPlaneError
from rolecall.workbench.controlplane.binaries import VERSION_VARIABLE, find_binaries
from rolecall.workbench.controlplane.components import COMPONENTS
from rolecall.workbench.controlplane.download import RELEASES
from rolecall.workbench.controlplane.state import is_alive, known_names, memory_bytes

STATE_VARIABLE = "ROLECALL_STATE_DIR"
SIGNAL_EXIT_BASE = 128
COMMAND_NOT_FOUND = 127

_DESCRIPTION = """A Kubernetes control plane on this machine, without Docker: etcd, kube-apiserver,
kube-controller-manager, kube-scheduler, and nodes that kwok simulates.
Several can run side by side, each under a name."""
_EXAMPLES = """Examples:
  export KUBECONFIG="$(rolecall cluster start)"
  rolecall cluster exec -- kubectl get nodes"""
_START = (
    "Starts a control plane, waits until it is ready, and prints the path of its kubeconfig. If it is already running, "
    "nothing changes."
)
_STOP = "Stops a control plane and removes its state."
_STATUS = "Shows the components of a control plane. The exit code is 0 only if all of them are running."
_KUBECONFIG = "Prints the path of a kubeconfig of a running control plane."
_LOGS = "Prints the logs of a control plane's components."
_EXEC = (
    "Runs a command with KUBECONFIG set and kubectl on PATH. Starts the control plane before the command and stops it "
    "afterward, unless it is already running. The exit code is that of the command."
)
_BINARIES = (
    "Makes sure that the programs of a control plane are installed, and prints their directory. Uses the programs from "
    "KUBEBUILDER_ASSETS, PATH or the cache if they exist; otherwise downloads them, or builds them with Go."
)

Handler = Callable[[argparse.Namespace], int]


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    cluster = subparsers.add_parser(
        "cluster",
        help="the embedded control plane: a Kubernetes API without Docker",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = cluster.add_subparsers(title="commands", metavar="COMMAND")
    start = _command(commands, "start", _start, "start a control plane, print the path of its kubeconfig", _START)
    _add_nodes(start)
    stop = _command(commands, "stop", _stop, "stop a control plane and remove its state", _STOP)
    stop.add_argument("--all", action="store_true", help="stop all control planes of this user")
    status = _command(commands, "status", _status, "show the components and whether they are running", _STATUS)
    status.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="the output format (default: %(default)s)"
    )
    kubeconfig = _command(commands, "kubeconfig", _kubeconfig, "print the path of a kubeconfig", _KUBECONFIG)
    kubeconfig.add_argument(
        "--service-account",
        metavar="NAMESPACE/NAME",
        help="print the kubeconfig of this service account instead of the administrator's",
    )
    logs = _command(commands, "logs", _logs, "print the logs of the components", _LOGS)
    logs.add_argument(
        "component",
        nargs="?",
        choices=COMPONENTS,
        metavar="COMPONENT",
        help=f"one of {', '.join(COMPONENTS)} (default: all of them)",
    )
    logs.add_argument("-f", "--follow", action="store_true", help="keep printing new lines until interrupted")
    execute = _command(commands, "exec", _exec, "run a command with a temporary control plane", _EXEC)
    options = "[--name NAME] [--state-dir DIR] [--nodes N] [--kubernetes-version VERSION]"
    execute.usage = f"{execute.prog} {options} -- COMMAND [ARGUMENT ...]"
    _add_nodes(execute)
    execute.add_argument("command", nargs="+", metavar="COMMAND", help="the command and its arguments")
    text = "install the programs if needed, print their directory"
    binaries = commands.add_parser("binaries", help=text, description=_BINARIES)
    add_kubernetes_version(binaries)
    binaries.set_defaults(handler=_guarded(_binaries))


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    handler: Handler,
    text: str,
    description: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=description)
    parser.add_argument("--name", default="default", help="the name of the control plane (default: %(default)s)")
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=os.environ.get(STATE_VARIABLE),
        metavar="DIR",
        help=f"the directory for the state of all control planes (default: ${STATE_VARIABLE}, or a private directory)",
    )
    parser.set_defaults(handler=_guarded(handler))
    return parser


def _add_nodes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nodes", type=POSITIVE.parse, default=1, metavar="N", help="the number of nodes (default: %(default)s)"
    )
    add_kubernetes_version(parser)


def add_kubernetes_version(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the Kubernetes version of a control plane."""
    *_, newest = RELEASES
    parser.add_argument(
        "--kubernetes-version",
        default="",
        metavar="VERSION",
        help=f"the version of Kubernetes, {', '.join(RELEASES)} (default: ${VERSION_VARIABLE}, or {newest})",
    )


def _guarded(handler: Handler) -> Handler:
    """Turn expected errors and interruptions into a message and an exit code."""

    def run(arguments: argparse.Namespace) -> int:
        try:
            with interrupted_by_signals():
                return handler(arguments)
        except ControlPlaneError as error:
            _say(f"rolecall: {error}", color="31")
            return 1
        except KeyboardInterrupt:
            _say("rolecall: interrupted")
            return INTERRUPTED

    return run


def _say(message: str, color: str = "") -> None:
    if color and sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        message = f"\033[{color}m{message}\033[0m"
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _control_plane(arguments: argparse.Namespace) -> ControlPlane:
    return ControlPlane(
        arguments.name,
        state_directory=arguments.state_dir,
        nodes=getattr(arguments, "nodes", 1),
        kubernetes=getattr(arguments, "kubernetes_version", ""),
        report=_say,
    )


def _start(arguments: argparse.Namespace) -> int:
    control_plane = _control_plane(arguments)
    started = control_plane.start()
    state = "is ready" if started else "is already running"
    _say(f"Control plane {control_plane.name!r} {state} at {control_plane.server}")
    _print(str(control_plane.kubeconfig))
    return 0


def _stop(arguments: argparse.Namespace) -> int:
    names = known_names(arguments.state_dir) if arguments.all else [arguments.name]
    for name in names:
        stopped = ControlPlane(name, state_directory=arguments.state_dir).stop()
        _say(f"Control plane {name!r} {'is stopped' if stopped else 'is not running'}")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    control_plane = _control_plane(arguments)
    report = _status_report(control_plane)
    if arguments.output == "json":
        _print(json.dumps(report, indent=2))
    else:
        _print(_status_text(report))
    return 0 if report["state"] == "running" else 1


def _status_report(control_plane: ControlPlane) -> dict[str, Any]:
    state = control_plane.state()
    if state is None:
        return {"name": control_plane.name, "state": "stopped", "components": []}
    rows = [
        {
            "name": name,
            "pid": record.pid,
            "running": is_alive(record),
            "memoryMiB": round(memory_bytes(record) / 2**20),
        }
        for name, record in state.processes.items()
    ]
    return {
        "name": control_plane.name,
        "state": _state_name(control_plane, is_ready=state.is_ready),
        "server": control_plane.server,
        "kubeconfig": str(control_plane.kubeconfig),
        "nodes": state.nodes,
        "components": rows,
    }


def _state_name(control_plane: ControlPlane, *, is_ready: bool) -> str:
    if not is_ready:
        return "starting"
    return "running" if control_plane.is_running() else "degraded"


def _status_text(report: dict[str, Any]) -> str:
    lines = [f"{report['name']}: {report['state']}"]
    if "server" in report:
        lines += [
            f"server:     {report['server']}",
            f"kubeconfig: {report['kubeconfig']}",
            f"nodes:      {report['nodes']}",
        ]
    for row in report["components"]:
        what = f"pid {row['pid']}, {row['memoryMiB']} MiB" if row["running"] else "not running"
        lines.append(f"  {row['name']:<24} {what}")
    return "\n".join(lines)


def _kubeconfig(arguments: argparse.Namespace) -> int:
    control_plane = _control_plane(arguments)
    path = control_plane.existing_kubeconfig()
    if arguments.service_account is not None:
        namespace, separator, name = arguments.service_account.partition("/")
        if not (namespace and separator and name):
            raise ControlPlaneError(f"--service-account: expected NAMESPACE/NAME, found {arguments.service_account!r}")
        path = control_plane.service_account_kubeconfig(namespace, name)
    _print(str(path))
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    control_plane = _control_plane(arguments)
    control_plane.existing_kubeconfig()
    components = [arguments.component] if arguments.component else COMPONENTS
    files = [str(control_plane.layout.log(component)) for component in components]
    follow = ["-F"] if arguments.follow else []
    code = subprocess.call(["tail", "-n", "+1", *follow, *(file for file in files if Path(file).exists())])
    return code if code >= 0 else SIGNAL_EXIT_BASE - code


def _exec(arguments: argparse.Namespace) -> int:
    control_plane = _control_plane(arguments)
    started = control_plane.start()
    try:
        return _run_with(control_plane, arguments.command)
    finally:
        if started:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second interrupt must not leave processes behind
            control_plane.stop()
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _run_with(control_plane: ControlPlane, command: list[str]) -> int:
    """Run the command to its end, even when we get a signal, and return its exit code as a shell would."""
    path = os.pathsep.join(filter(None, (os.environ.get("PATH"), str(control_plane.program_directory))))
    environment = os.environ | {"KUBECONFIG": str(control_plane.kubeconfig), "PATH": path}
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        _say(f"rolecall: cannot start {command[0]!r}: {error.strerror}", color="31")
        return COMMAND_NOT_FOUND
    code = _wait_for(process)
    return code if code >= 0 else SIGNAL_EXIT_BASE - code


def _wait_for(process: subprocess.Popen[bytes]) -> int:
    """Wait for the command. A terminal interrupts it together with us; pass SIGTERM on."""
    signal.signal(signal.SIGTERM, lambda number, _frame: process.send_signal(number))
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def _binaries(arguments: argparse.Namespace) -> int:
    programs = find_binaries(_say, kubernetes=arguments.kubernetes_version)
    _print(str(programs["kubectl"].parent))
    return 0
