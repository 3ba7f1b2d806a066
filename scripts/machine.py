"""What set-up asks of the system itself: a virtual environment, and Java from its package manager."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from catchment.errors import SetupError

# Per package manager: how to install without questions, and names to try for Java, best first.
INSTALL = {
    "apt-get": (
        ["apt-get", "install", "-y", "-q", "--no-install-recommends"],
        ["openjdk-17-jre-headless", "openjdk-21-jre-headless"],
    ),
    "dnf": (["dnf", "install", "-y", "-q"], ["java-17-openjdk-headless", "java-21-openjdk-headless"]),
    "yum": (["yum", "install", "-y", "-q"], ["java-17-openjdk-headless"]),
    "apk": (["apk", "add", "-q"], ["openjdk17-jre-headless", "openjdk21-jre-headless"]),
    "brew": (["brew", "install", "--quiet"], ["openjdk@17"]),
}


def make_venv(folder: Path) -> None:
    """A new, empty virtual environment with pip in it. What was in the folder before is gone."""
    command = [sys.executable, "-m", "venv", "--clear", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    names = [f"python{version}-venv", "python3-venv"]
    if shutil.which("apt-get") and _privileged() is not None:
        _install("apt-get", names)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
    said = (done.stdout + done.stderr).strip().splitlines()
    raise SetupError(
        f"this Python cannot make a virtual environment ({said[-1] if said else 'it does not say why'})",
        hint=f"install its venv module (Debian: apt-get install {names[0]}), then run the same command again",
    )


def install_java() -> None:
    """Install a Java 17 or 21 with the package manager. SetupError with what to install if that is not allowed."""
    for manager, (_, names) in INSTALL.items():
        if shutil.which(manager) and (manager == "brew" or _privileged() is not None):
            _install(manager, names)
            return
    raise SetupError(
        "there is no Java 17 or newer, and no right to install it",
        hint="install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless; Fedora: dnf install"
        " java-17-openjdk-headless; macOS: brew install openjdk@17), then run the same command again",
    )


def _privileged() -> list[str] | None:
    """What to put before a command to run it as root without being asked for a password; None if there is no way."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0:
        return [sudo, "-n"]
    return None


def _install(manager: str, names: list[str]) -> None:
    """Install the first of these packages that there is."""
    command, _ = INSTALL[manager]
    before = [] if manager == "brew" else _privileged() or []
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if manager == "apt-get":  # its list of packages may be old or not there at all
        subprocess.run([*before, "apt-get", "update", "-q"], env=environ, capture_output=True, check=False)
    said = ""
    for name in names:
        print(f"            installing {name} with {manager} …", file=sys.stderr, flush=True)
        done = subprocess.run([*before, *command, name], env=environ, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        said = (done.stderr or done.stdout).strip()
    last = said.splitlines()[-1] if said else "it does not say why"
    raise SetupError(
        f"{manager} could not install {' or '.join(names)} ({last})",
        hint=f"install {names[0]}, then run the same command again",
    )
