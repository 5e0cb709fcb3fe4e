//! Rules that cannot be used are refused by parameter and value.

use super::{Rules, custom, settings};
use lines::redact::RedactionSettings;

fn refusal(settings: &RedactionSettings) -> String {
    Rules::compile(settings).unwrap_err().to_string()
}

#[test]
fn a_path_that_leads_nowhere_is_refused() {
    for path in
        ["", "$", "a..b", ".a", "a.", "a[", "a[x]", "a[-1]", "a['x", "a]b", "*", "[0]", "a b[0]c", "a$", "a[0]b", "$x"]
    {
        let refused = Rules::compile(&settings(&[path], &[]));
        let lenient = ["$x"].contains(&path);
        assert_eq!(refused.is_ok(), lenient, "{path}");
        if let Err(refused) = refused {
            assert_eq!(refused.what, format!("redact_fields={path:?}"));
        }
    }
    assert!(refusal(&settings(&["a.".repeat(40).trim_end_matches('.')], &[])).contains("1 to 32 steps"));
}

#[test]
fn an_expression_that_is_none_or_too_large_or_matches_nothing_is_refused_with_its_name() {
    for (expression, why) in [
        ("(a", "is no regular expression: unclosed group"),
        (r"(a)\1", "is no regular expression: backreferences are not supported"),
        ("(?=a)", "is no regular expression: look-around, including look-ahead and look-behind, is not supported"),
        ("a*", "must not match an empty text, or nothing at all"),
        (r"\b", "must not match an empty text, or nothing at all"),
        ("", "must not match an empty text, or nothing at all"),
        ("[a&&b]", "must not match an empty text, or nothing at all"),
        (r"(?:\w{100}){100}", "must take at most 1048576 bytes when compiled"),
        (&"(".repeat(2000), "must be"),
        (&"a".repeat(4097), "must be at most 4096 bytes"),
    ] {
        let refused = refusal(&custom(expression));
        assert!(refused.starts_with(&format!("redact_custom[\"own\"]={expression:?}: ")), "{refused}");
        assert!(refused.contains(why) || why == "must be", "{refused}");
    }
}

#[test]
fn patterns_and_replacements_are_refused_by_name() {
    assert_eq!(
        refusal(&settings(&[], &["mail"])),
        r#"redact_patterns="mail": must be one of email, phone, card, key, bearer"#
    );
    let replacement = RedactionSettings { replacement: "a\nb".to_owned(), ..settings(&["a"], &[]) };
    assert!(refusal(&replacement).starts_with(r#"redact_replacement="a\nb": must be"#));
    let named = RedactionSettings { custom: vec![("a b".to_owned(), "x".to_owned())], ..settings(&[], &[]) };
    assert!(refusal(&named).starts_with(r#"redact_custom["a b"]="x": must have a name"#));
}

#[test]
fn nothing_to_redact_is_no_rules() {
    assert!(Rules::compile(&settings(&[], &[])).unwrap().is_none());
}
