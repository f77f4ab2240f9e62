"""A writer of a test's own."""


class Notes:
    """Notes its calls."""

    def __init__(self):
        self.calls = []

    def write(self, step, scalars):
        self.calls.append((step, dict(scalars)))

    def flush(self):
        self.calls.append("flush")

    def close(self):
        self.calls.append("close")

    @property
    def steps(self):
        return [call[0] for call in self.calls if isinstance(call, tuple)]
