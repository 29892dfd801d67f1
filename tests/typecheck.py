"""The checker that pytest runs over annotations: beartype, with int allowed where float is annotated (PEP 484).

What it refuses is a TypeError.
"""

import beartype

typechecked = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True, violation_type=TypeError))
