//! Prints each request of a Mooncake trace: milliseconds of its arrival, tokens of the input, tokens of the output.
//!
//! Run: mooncake-reader FILE TOKENS_OF_A_BLOCK

use aisimulate_core::replay::loadgen::Trace;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("a file");
    let block_tokens = arguments.next().and_then(|text| text.parse().ok()).expect("tokens of a block");
    let trace = Trace::from_mooncake(path.as_ref(), block_tokens).expect("a trace");
    for session in &trace.sessions {
        let turn = &session.turns[0];
        let arrival_ms = session.first_arrival_timestamp_ms.expect("a time");
        println!("[{arrival_ms}, {}, {}]", turn.input_length, turn.max_output_tokens);
    }
}
