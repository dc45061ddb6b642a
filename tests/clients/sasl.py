"""Who a client says it is, in each library's own options: what `config` of `model.Client` takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.kafka.sasl import OAUTHBEARER, PLAIN, unsecured_token

if TYPE_CHECKING:
    from tests.kafka.sasl import User

_TOKEN_S = 600
_MODULES = "org.apache.kafka.common.security"


class Login(NamedTuple):
    """A mechanism, and who comes with it. For OAUTHBEARER the password is of no use."""

    mechanism: str
    user: User


def librdkafka(login: Login) -> dict[str, Any]:
    common = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": login.mechanism}
    if login.mechanism == OAUTHBEARER:
        return common | {"oauth_cb": lambda _config: (token(login.user), time.time() + _TOKEN_S)}
    return common | {"sasl.username": login.user.name, "sasl.password": login.user.password}


def python(login: Login) -> dict[str, Any]:
    """For kafka-python and aiokafka. A token is handed to the worker as `sasl_oauth_token`."""
    common = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": login.mechanism}
    if login.mechanism == OAUTHBEARER:
        return common | {"sasl_oauth_token": token(login.user)}
    name, password = login.user
    return common | {"sasl_plain_username": name, "sasl_plain_password": password}


def java(login: Login) -> dict[str, str]:
    name, password = login.user
    if login.mechanism == OAUTHBEARER:
        module, options = "oauthbearer.OAuthBearer", f'unsecuredLoginStringClaim_sub="{name}"'
    else:
        module = "plain.Plain" if login.mechanism == PLAIN else "scram.Scram"
        options = f'username="{name}" password="{password}"'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": login.mechanism,
        "sasl.jaas.config": f"{_MODULES}.{module}LoginModule required {options};",
    }


def token(user: User) -> str:
    return unsecured_token({"sub": user.name, "exp": int(time.time()) + _TOKEN_S})
