"""The shared collection of real faults: which of them can be read off the source."""

from pathlib import Path

import pytest

from pullback.linter.engine import lint

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"

VISIBLE = {
    "efficient_ce_unbound": "PB114",
    "fa_lse_ignored": "PB116",
    "fla_none_state_grad": "PB120",
    "fla_tuple": "PB123",
    "gpytorch_cached_sign": "PB104",
    "hf_rwkv_signature": "PB111",
    "inplace_abn_sum": "PB101",
    "keops_count": "PB109",
    "liger_no_grad_unbound": "PB114",
    "liger_rms_clobber": "PB101",
    "liger_swiglu_overwrite": "PB104",
    "megatron_tangent": "PB101",
    "pt126676_saved_attribute": "PB215",
    "pt16947_class_state": "PB119",
    "pt25340_output_cycle": "PB202",
    "pt5871_mark_dirty": "PB107",
    "pt65536_inner_graph": "PB201",
    "pt94990_view_of_output_leak": "PB202",
    "pulsar_early_return": "PB113",
    "unsloth_is_contiguous": "PB118",
    "warp_transducer_none": "PB104",
    "warpctc_ignores_grad": "PB115",
}

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the collection of real faults is not beside this checkout")


@pytest.mark.parametrize(("case", "code"), VISIBLE.items(), ids=list(VISIBLE))
def test_visible_fault_is_named(case: str, code: str):
    findings = lint([CASES / f"{case}.py"]).findings
    assert code in {f.code for f in findings if f.subject.endswith(".Buggy")}


@pytest.mark.parametrize("path", sorted(CASES.glob("*.py")) if CASES.is_dir() else [], ids=lambda p: p.stem)
def test_mended_code_has_no_error_and_no_warning(path: Path):
    findings = lint([path]).findings
    assert [f for f in findings if f.subject.endswith(".Fixed") and f.severity != "note"] == []


@pytest.mark.parametrize("path", sorted(CASES.glob("*.py")) if CASES.is_dir() else [], ids=lambda p: p.stem)
def test_nothing_else_is_alleged(path: Path):
    grave = {f.code for f in lint([path]).findings if f.severity != "note"}
    assert grave <= {VISIBLE.get(path.stem), *({"PB101"} if path.stem == "unsloth_is_contiguous" else set())}
