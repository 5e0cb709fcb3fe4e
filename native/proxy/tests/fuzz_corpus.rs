//! Every input of the fuzz target `heads` (`native/fuzz/corpus.tar.zst`), in every run of the tests.

#[path = "../../fuzz/targets/heads.rs"]
mod heads;
#[path = "../../fuzz/targets/replay.rs"]
mod replay;

#[test]
fn any_head_is_refused_or_passed_on_as_http_asks_for() {
    replay::replay("heads", heads::check);
}
