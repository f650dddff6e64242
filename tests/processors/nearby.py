"""The way out of a service under test: to servers on this machine, because the operator said so."""

from processors.outbound import Outbound
from processors.public_addresses import read_private

THIS_MACHINE = "127.0.0.1, ::1"
NEARBY = Outbound(read_private(THIS_MACHINE))
