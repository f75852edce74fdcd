import asyncio
from typing import Any

import pytest

from rolecall.kube.errors import UnreachableError
from rolecall.kube.references import RawObject
from rolecall.runner.serving.authentication import CACHE_SIZE, MAX_CONCURRENT_REVIEWS, TokenReviewer, Verdict

USER = {"username": "scraper", "uid": "7", "groups": ["g"], "extra": {"key": ["value"]}}


class ApiServer:
    """Knows the token ``good`` and says whether its owner may read metrics."""

    def __init__(self) -> None:
        self.allowed = True
        self.asked: list[RawObject] = []

    async def create(self, obj: RawObject) -> RawObject:
        """Answer a review."""
        self.asked.append(obj)
        if obj["kind"] == "TokenReview":
            good = obj["spec"]["token"].startswith("good")
            return {**obj, "status": {"authenticated": good, "user": USER} if good else {"error": "who?"}}
        return {**obj, "status": {"allowed": self.allowed}}


class Time:
    """A monotonic clock that the test moves."""

    seconds = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.seconds


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def reviewer(server: ApiServer, time: Time) -> TokenReviewer:
    return TokenReviewer(server.create, time)


async def test_access_review_has_all_user_fields(reviewer: TokenReviewer, server: ApiServer) -> None:
    assert await reviewer.authorize("good", "get", "/metrics") is Verdict.ALLOWED
    assert [obj["kind"] for obj in server.asked] == ["TokenReview", "SubjectAccessReview"]
    assert server.asked[1]["spec"] == {
        "user": "scraper",
        "uid": "7",
        "groups": ["g"],
        "extra": {"key": ["value"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_unknown_token_gets_no_access_review(reviewer: TokenReviewer, server: ApiServer) -> None:
    assert await reviewer.authorize("bad", "get", "/metrics") is Verdict.UNAUTHENTICATED
    assert len(server.asked) == 1


async def test_acceptance_is_cached_for_a_minute_and_refusal_for_ten_seconds(
    reviewer: TokenReviewer, server: ApiServer, time: Time
) -> None:
    async def asked(token: str) -> tuple[Verdict, int]:
        before = len(server.asked)
        return await reviewer.authorize(token, "get", "/metrics"), len(server.asked) - before

    assert await asked("good") == (Verdict.ALLOWED, 2)
    server.allowed = False
    time.seconds = 59
    assert await asked("good") == (Verdict.ALLOWED, 0)
    assert await asked("good too") == (Verdict.FORBIDDEN, 2)
    time.seconds = 61
    assert await asked("good") == (Verdict.FORBIDDEN, 2)
    server.allowed = True
    time.seconds = 68
    assert await asked("good too") == (Verdict.FORBIDDEN, 0)
    time.seconds = 70
    assert await asked("good too") == (Verdict.ALLOWED, 2)


async def test_cache_is_bounded_and_has_only_digests(reviewer: TokenReviewer) -> None:
    for number in range(CACHE_SIZE + 50):
        await reviewer.authorize(f"good {number}", "get", "/metrics")
    assert len(reviewer._cache) == CACHE_SIZE
    assert "good" not in repr(reviewer)


async def test_invalid_tokens_displace_no_valid_one(reviewer: TokenReviewer, server: ApiServer, time: Time) -> None:
    assert await reviewer.authorize("good", "get", "/metrics") is Verdict.ALLOWED
    for number in range(CACHE_SIZE + 50):
        await reviewer.authorize(f"bad{number}", "get", "/metrics")
    before = len(server.asked)
    assert await reviewer.authorize("good", "get", "/metrics") is Verdict.ALLOWED
    assert len(server.asked) == before
    time.seconds = 11.0
    await reviewer.authorize("bad", "get", "/metrics")
    await reviewer.authorize("bad", "get", "/metrics")
    assert len(server.asked) == before + 1, "rejections are cached again once the others have expired"


async def test_error_is_not_cached(reviewer: TokenReviewer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_obj: RawObject) -> Any:
        raise UnreachableError("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(reviewer, "create", refuse)
        with pytest.raises(UnreachableError):
            await reviewer.authorize("good", "get", "/metrics")
    assert await reviewer.authorize("good", "get", "/metrics") is Verdict.ALLOWED


class SlowApiServer(ApiServer):
    """Counts the reviews that it has not answered yet; they wait until ``may_answer``."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.open = self.most_open = 0

    async def create(self, obj: RawObject) -> RawObject:
        """Answer a review later."""
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await self.may_answer.wait()
        self.open -= 1
        return await super().create(obj)


async def test_concurrent_reviews_are_limited(time: Time) -> None:
    server = SlowApiServer()
    reviewer = TokenReviewer(server.create, time)
    asking = [asyncio.create_task(reviewer.authorize(f"bad-{number}", "get", "/metrics")) for number in range(60)]
    asking += [asyncio.create_task(reviewer.authorize("good", "get", "/metrics")) for _ in range(60)]
    await asyncio.sleep(0)
    server.may_answer.set()
    verdicts = await asyncio.gather(*asking)
    assert server.most_open == MAX_CONCURRENT_REVIEWS
    assert verdicts == [Verdict.UNAUTHENTICATED] * 60 + [Verdict.ALLOWED] * 60
    assert len([obj for obj in server.asked if obj["spec"].get("token") == "good"]) <= MAX_CONCURRENT_REVIEWS
