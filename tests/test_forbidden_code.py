"""Code that the source of the service may not contain."""

import ast
from collections.abc import Iterator

from tests.support.running.processes import ROOT

PACKAGES = ("api", "audit", "daybook", "domain", "eventlog", "processors", "projections")

# They run, load or expand their argument.
RUNNERS = {"eval", "exec", "system", "popen", "create_subprocess_shell", "safe_substitute"}
LOADERS = {"pickle", "marshal", "shelve", "xml", "lxml", "yaml", "jinja2", "ldap", "smtplib"}
BROKEN = {"md5", "sha1", "MD5", "SHA1", "ECB", "CBC", "TripleDES", "ARC4", "Blowfish", "PKCS1v15"}
ELSEWHERE = {"FileHandler", "SysLogHandler", "SocketHandler", "HTTPHandler", "syslog"}
CRYPTOGRAPHY = {"cryptography", "hashlib", "hmac", "jwt", "secrets", "ssl"}
STATEMENTS = {"execute", "executemany", "copy", "stream"}
# The names of tables of ours, and patterns by which errors of the system are known.
OURS = {("projections/doctor/doctor.py", "table.name"), ("api/server/database.py", "sign")}
# Made from settings alone.
SET = {"b'\\\\{,{%d,}\\\\}|\\\\[,{%d,}\\\\]' % (members_max, items_max)"}


# Compiles functions from declarations of tables and JSON in this repository, without any input.
COMPILED = {("eventlog/generated_code.py", "exec(source, scope)")}


def sources() -> Iterator[tuple[str, ast.AST]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(path.read_text())):
                yield name, node


def named(node: ast.AST) -> str:
    """The name of a called or accessed attribute, without its owner."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name):
            return name
    return ""


def imported(node: ast.AST) -> set[str]:
    match node:
        case ast.Import(names=names):
            return {one.name.partition(".")[0] for one in names}
        case ast.ImportFrom(module=str(module), names=_):
            return {module.partition(".")[0]}
    return set()


def test_nothing_from_outside_is_run_unpickled_or_expanded() -> None:
    found = {
        (name, ast.unparse(node))
        for name, node in sources()
        if (isinstance(node, ast.Call) and named(node.func) in RUNNERS)
        or (isinstance(node, ast.keyword) and node.arg == "shell")
        or imported(node) & LOADERS
    }
    assert found == COMPILED


def test_only_two_modules_use_the_integers_of_uuids() -> None:
    """Others call `key_of`, which says why."""
    found = {
        name for name, node in sources() if isinstance(node, ast.Attribute) and node.attr == "int"
    }
    assert found == {"domain/ids.py", "eventlog/postgres/binary_arrays.py"}


def test_no_statement_is_made_from_a_text() -> None:
    """Values are parameters; of a text only our own constants are put into another."""
    found = {
        (name, made)
        for name, node in sources()
        if isinstance(node, ast.Call) and named(node.func) in STATEMENTS and node.args
        for part in ast.walk(node.args[0])
        for made in made_of(part)
    }
    assert found <= OURS


def made_of(part: ast.AST) -> list[str]:
    """Values in a text that are no constants."""
    match part:
        case ast.JoinedStr(values=values):
            filled = [one.value for one in values if isinstance(one, ast.FormattedValue)]
            return [text for text in map(ast.unparse, filled) if not text.isupper()]
        case ast.BinOp(op=ast.Mod() | ast.Add()):
            return [ast.unparse(part)]
    return []


def test_no_pattern_is_made_from_request_data() -> None:
    """A pattern is a text of ours, or made of such when a module is loaded."""
    functions = {"compile", "match", "fullmatch", "search", "sub", "findall", "finditer", "split"}
    found = set()
    for name, node in sources():
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=attr), args=[given, *_]):
                if attr in functions and not is_ours(given):
                    found.add((name, ast.unparse(given)))
    assert {(name, made) for name, made in found if made not in SET} <= OURS


def is_ours(pattern: ast.AST) -> bool:
    variables = {node.id for node in ast.walk(pattern) if isinstance(node, ast.Name)}
    return all(name.isupper() for name in variables)


def test_no_hash_or_cipher_is_used_that_is_broken() -> None:
    """Ids that follow from others are made with SHA-1, as their standard says; no secret is."""
    found = {(name, named(node)) for name, node in sources() if named(node) in BROKEN}
    assert found == {("domain/ids.py", "sha1")}


def test_chance_that_can_be_foreseen_makes_no_secret() -> None:
    """It spreads retries; a module that deals with secrets does not even know it."""
    careless = {name for name, node in sources() if "random" in imported(node)}
    secretive = {name for name, node in sources() if imported(node) & CRYPTOGRAPHY}
    assert careless
    assert careless & secretive == set()


def test_lines_go_to_stderr_and_nowhere_else() -> None:
    assert {(name, named(node)) for name, node in sources() if named(node) in ELSEWHERE} == set()
