import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def prove():
    """Prove an op against its reference: see `proof.Proof`."""
    from proof import Proof

    return lambda op, **options: Proof(op, **options).run()


@pytest.fixture
def passes_check():
    """Run `pb.check` on an op's samples; fail on an error or a warning."""
    from proof import check_op

    return check_op
