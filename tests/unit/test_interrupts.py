"""What tests start can be interrupted, however the tests themselves were started."""

import subprocess
import sys

from support.netns.waiting import HUNG_S

_ASK = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"


def test_child_of_a_test_can_be_interrupted():
    assert subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True).stdout == "True\n"


def test_child_of_a_test_can_be_interrupted_where_the_tests_run_in_the_background():
    """A shell without job control starts what ends in `&` with SIGINT ignored, and children inherit that."""
    words = [sys.executable, "-m", "pytest", "-q", "-n0", "-k", "test_child_of_a_test_can_be_interrupted and not where"]
    background = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *words, __file__]
    done = subprocess.run(background, capture_output=True, text=True, check=False, timeout=HUNG_S)

    assert done.returncode == 0, done.stdout
