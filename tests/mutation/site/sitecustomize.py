"""Found first on the path of every Python that a test starts: such a process has the mutant too."""

from tests.mutation.loading import install_announced

install_announced()
