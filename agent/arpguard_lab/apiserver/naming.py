"""What names, label values and finalizers may look like (RFC 1123, RFC 1035), in the words of a kube-apiserver."""

import re
from dataclasses import dataclass

_LABEL_TEXT = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern, the longest match, and what to say of anything else."""

    pattern: re.Pattern[str]
    longest: int
    says: str

    def problem(self, text: str) -> str:
        """What is wrong with a text; "" if nothing is."""
        if len(text) > self.longest:
            return f"must be no more than {self.longest} characters"
        return "" if self.pattern.fullmatch(text) else self.says


SUBDOMAIN = Rule(
    re.compile(rf"{_LABEL_TEXT}(\.{_LABEL_TEXT})*"),
    253,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
)
LABEL = Rule(
    re.compile(_LABEL_TEXT),
    63,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
)
OLD_LABEL = Rule(
    re.compile("[a-z]([-a-z0-9]*[a-z0-9])?"),
    63,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')",
)
SEGMENT = Rule(re.compile(r"(?!\.{1,2}$)[^/%]+"), 1024, "may not be '.', '..', or contain '/' or '%'")
LABEL_VALUE = Rule(
    re.compile("(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"),
    63,
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
)
CONFIG_KEY = Rule(
    re.compile("[-._a-zA-Z0-9]+"),
    253,
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
)
QUALIFIED = Rule(
    re.compile(rf"({_LABEL_TEXT}(\.{_LABEL_TEXT})*/)?([A-Za-z0-9][-A-Za-z0-9_.]{{0,61}})?[A-Za-z0-9]"),
    317,
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
)
