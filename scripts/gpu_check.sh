#!/usr/bin/env bash
# Run everything that needs a CUDA device, and print figures; exits 0 with a line that says so where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
command -v "$python" > /dev/null || python=python3
start=$SECONDS
budget=${BUDGET:-470}
if ! device=$("$python" -c 'import torch; assert torch.cuda.is_available(); print(torch.cuda.get_device_name(), "torch", torch.__version__)' 2> /dev/null); then
    echo "gpu_check: no CUDA device here, nothing was run"
    exit 0
fi
echo "gpu_check: $device"
status=0
step() {
    local name=$1 from=$SECONDS left=$((budget - SECONDS + start))
    shift
    if [ "$left" -le 5 ]; then
        echo "gpu_check: $name: not run, no time left of $budget s"
        status=1
        return
    fi
    timeout "$left" "$@" || { status=1; echo "gpu_check: $name: failed"; }
    echo "gpu_check: $name: $((SECONDS - from)) s"
}
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=4
step "checks of the gpu tier" "$python" -m pytest -q -p no:cacheprovider tests/battery/checks/test_kills_and_spares.py -k "PB802 or PB803 or PB804"
step "tests on CUDA" "$python" -m pytest -q -p no:cacheprovider --durations=10 -k "cuda or gpu" tests
step "elementwise ops: bandwidth, time, memory" "$python" benchmarks/classics_gpu.py --seconds 30
step "norms and losses: bandwidth, time, memory" "$python" benchmarks/fused_gpu.py --seconds 60
echo "gpu_check: $((SECONDS - start)) s in all, status $status"
exit $status
