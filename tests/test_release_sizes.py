"""What `make sizes` prints: each byte of a wheel counts once, and code counts to the crate in its name."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "release"))  # its files import each other by bare name

import inference_logging._native as native
import sizes

MODULE = Path(native.__file__)


@pytest.mark.parametrize(
    ("symbol", "crate"),
    [
        ("_ZN14inferlog_lines6encode7Encoder4line17h6d1c9d0d4b7a5f23E", "lines"),
        ("_ZN4core5slice4sort6stable9quicksort9quicksort17h0123456789abcdefE", "standard library"),
        ("_ZN77_$LT$listener..proxy..Recorded$u20$as$u20$tower_service..Service$LT$R$GT$$GT$4call17hE", "listener"),
        ("_ZN42_$LT$$RF$T$u20$as$u20$core..fmt..Debug$GT$3fmt17h0123456789abcdefE", "standard library"),
        ("_RNvNtCs26n0fBqFr1z_14regex_automata4util5start", "regex_automata"),
        ("_RNvMs_NtCs1234_2h25framesNtB4_4Head", "h2"),
        ("ZSTD_compressBlock_fast", "zstd"),
        ("blake3_hash_many_avx2", "blake3"),
        ("memcpy", "others in C"),
    ],
)
def test_a_function_counts_to_the_first_crate_in_its_name(symbol: str, crate: str) -> None:
    assert sizes.crate_of(symbol) == crate


def test_the_table_of_a_wheel_has_each_of_its_files_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        files.write(MODULE, "package/_native.so")
        files.writestr("package/one/a.py", "a" * 100)
        files.writestr("package/one/b.py", "b" * 10)
        files.writestr("package/top.py", "")
        files.writestr("package-1.0.dist-info/licenses/LICENSE", "c")
    monkeypatch.setattr(sys, "argv", ["sizes", str(wheel)])
    assert sizes.main() == 0
    first = capsys.readouterr().out.strip().split("\n\n")[0].splitlines()
    rows = {
        name: (int(raw.replace(",", "")), int(packed.replace(",", "")))
        for name, raw, packed in map(str.split, first[1:])
    }
    assert {name: raw for name, (raw, _) in rows.items() if name not in ("_native.so", "all")} == {
        "package/one": 110,
        "package": 0,
        "package-1.0.dist-info": 1,
    }
    assert rows["all"] == tuple(sum(row[at] for name, row in rows.items() if name != "all") for at in (0, 1))
    assert rows["_native.so"][0] == len(sizes.stripped(MODULE.read_bytes())) < MODULE.stat().st_size


def test_the_sections_of_a_file_are_what_is_loaded_of_it() -> None:
    content = MODULE.read_bytes()
    found = dict(sizes.sections(content))
    assert {".text", ".rodata"} <= set(found)
    assert sum(map(len, found.values())) <= len(sizes.stripped(content))
