"""`python -m bitfactor`, and so `torchrun -m bitfactor`."""

import sys

from bitfactor.cli import main

sys.exit(main())
