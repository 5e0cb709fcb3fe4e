//! Numbers of conditions are compared exactly.

use index::condition::Condition;
use index::record::Json;

fn holds(text: &str, value: Json) -> bool {
    Condition::parse(text).unwrap().holds_for(Some(&value))
}

#[test]
fn whole_numbers_and_floats_are_compared_without_rounding() {
    let beyond = 9_007_199_254_740_993; // 2^53 + 1
    assert!(holds("a=9007199254740993", Json::Int(beyond)));
    assert!(!holds("a=9007199254740992.0", Json::Int(beyond)));
    assert!(holds("a>9007199254740992.0", Json::Int(beyond)));
    assert!(holds("a<9007199254740993", Json::Float(9_007_199_254_740_992.0)));
    assert!(holds("a=18446744073709551615", Json::Int(u64::MAX.into())));
    assert!(holds(&format!("a<{}", "9".repeat(60)), Json::Float(1e59)));
    assert!(holds(&format!("a>1{}", "0".repeat(300)), Json::Float(1e301)));
    assert!(holds(&format!("a>-1{}", "0".repeat(300)), Json::Int(-5)));
    assert!(holds("a<1e400", Json::Int(5)) && holds("a!=nan", Json::Float(0.5)) && !holds("a=nan", Json::Float(0.5)));
}

#[test]
fn numbers_are_written_as_in_python() {
    for text in ["a=1_000", "a=+1000", "a=1e3", "a= 1000 ", "a=١٠٠٠", "a=1_0_00.0"] {
        assert!(holds(text, Json::Int(1000)), "{text}");
    }
    for text in ["a=1__000", "a=_1000", "a=1000_", "a=0x3e8", "a=1 000"] {
        assert!(!holds(text, Json::Int(1000)), "{text}");
    }
}
