"""The files of a release: wheel, bundle, image, software bill of materials, licenses, and their checksums.

They are built in a clone of the release's commit with locked packages.
"""

import hashlib
import os
import shlex
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tools.release.errors import ReleaseError
from tools.release.source import run

EXTRA = "ansible"
"""The extra of the usual installation, which the bill of materials and the licenses describe."""


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Makes the files of ``version`` from a clone, into ``target``; ``uv`` is a program, ``image`` the image's name."""

    clone: Path
    target: Path
    version: str
    uv: str
    image: str

    def wheel(self) -> None:
        """Build the wheel. It is reproducible: a second build has the same bytes."""
        time = run("git", "log", "-1", "--format=%ct", cwd=self.clone).strip()
        os.environ["SOURCE_DATE_EPOCH"] = time
        run(self.uv, "build", "--quiet", "--wheel", "--out-dir", str(self.target), cwd=self.clone)
        (self.target / ".gitignore").unlink(missing_ok=True)  # of uv

    def bundle(self) -> None:
        """Pack the OLM bundle and its Dockerfile."""
        rolecall = str(self._environment().with_name("rolecall"))
        programs = run(rolecall, "cluster", "binaries", cwd=self.clone).strip()
        variables = (f"KUBECTL={programs}/kubectl", f"VERSION={self.version}", f"IMG={self.image}")
        run("make", "--old-file=.venv/.ready", "bundle", *variables, cwd=self.clone)
        with tarfile.open(self.target / f"rolecall-{self.version}-olm-bundle.tar.gz", "w:gz") as archive:
            for name in ("bundle", "bundle.Dockerfile"):
                archive.add(self.clone / "deploy" / "olm" / name, arcname=f"rolecall-{self.version}-olm/{name}")

    def bill_of_materials(self) -> None:
        """Write the bill of materials, with versions and hashes, as CycloneDX."""
        name = self.target / f"rolecall-{self.version}.cdx.json"
        flags = ("--frozen", "--no-default-groups", "--extra", EXTRA, "--format", "cyclonedx1.5")
        run(self.uv, "export", "--quiet", "--preview", *flags, "--output-file", str(name), cwd=self.clone)

    def licenses(self) -> None:
        """Write the license of each package and collection."""
        listed = run(str(self._environment()), "build/licenses.py", cwd=self.clone)
        (self.target / f"rolecall-{self.version}-licenses.txt").write_text(listed)

    def image_archive(self) -> None:
        """Build the operator's image, showing the output, and save it as an archive that every engine can load."""
        engine = shlex.split(run("build/engine", cwd=self.clone))
        built = subprocess.run(["build/image", self.image], cwd=self.clone, check=False)
        if built.returncode:
            raise ReleaseError(f"build/image {self.image} ended with {built.returncode}; --no-image omits it")
        archive = self.target / f"rolecall-{self.version}-image.tar"
        if engine[0] == "docker":
            run(*engine, "save", "--output", str(archive), self.image, cwd=self.clone)
        elif engine[0] == "podman":
            run(*engine, "save", "--format", "docker-archive", "--output", str(archive), self.image, cwd=self.clone)
        else:
            run(*engine, "push", "--quiet", self.image, f"docker-archive:{archive}:{self.image}", cwd=self.clone)

    def checksums(self) -> None:
        """Write SHA256SUMS, as ``sha256sum --check`` reads it."""
        lines = [f"{_sha256(path)}  {path.name}\n" for path in sorted(self.target.iterdir())]
        (self.target / "SHA256SUMS").write_text("".join(lines))

    def _environment(self) -> Path:
        """Return the Python of an environment with only the locked packages. The first call creates it."""
        python = self.clone / ".venv" / "bin" / "python"
        if not python.exists():
            run(self.uv, "sync", "--quiet", "--frozen", "--no-default-groups", "--extra", EXTRA, cwd=self.clone)
        return python


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
