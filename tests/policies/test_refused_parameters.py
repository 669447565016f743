"""Parameters of policies that are refused."""

from refusals import refused

from clustergym.scenario.registry import make_policy


@refused("policies")
def test_a_wrong_parameter_is_one_line(given, said):
    with said.of_error():
        make_policy(given)
