//! Whether there is a console, and whether it has colours.

use crate::sink::SinkSettings;

/// Returns the console that the parameter `console` asks for, where standard error is a terminal or is none. The variables are those
/// that terminal programs share: `NO_COLOR`, `FORCE_COLOR` and `TERM`.
pub fn console(wish: &str, is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Option<SinkSettings> {
    let is_wanted = match wish {
        "on" => true,
        "auto" => is_terminal,
        _ => false,
    };
    is_wanted.then(|| SinkSettings::Console { colours: has_colours(is_terminal, variable) })
}

/// Whether text for people has colours: on a terminal, unless a variable says otherwise.
#[must_use]
pub fn has_colours(is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let is_forced = || is_set("FORCE_COLOR") && variable("FORCE_COLOR").as_deref() != Some("0");
    let is_dumb = || variable("TERM").as_deref() == Some("dumb");
    !is_set("NO_COLOR") && (is_forced() || (is_terminal && !is_dumb()))
}

#[cfg(test)]
mod tests {
    use super::has_colours;

    fn colours(is_terminal: bool, variables: &[(&str, &str)]) -> bool {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        has_colours(is_terminal, find)
    }

    #[test]
    fn a_terminal_has_colours_unless_a_variable_says_otherwise() {
        assert!(colours(true, &[("TERM", "xterm")]) && !colours(false, &[]));
        assert!(!colours(true, &[("NO_COLOR", "1")]) && colours(true, &[("NO_COLOR", "")]));
        assert!(!colours(true, &[("TERM", "dumb")]) && colours(false, &[("FORCE_COLOR", "1"), ("TERM", "dumb")]));
        assert!(!colours(true, &[("FORCE_COLOR", "1"), ("NO_COLOR", "1")]), "a user who wants none gets none");
        assert!(!colours(false, &[("FORCE_COLOR", "0")]) && colours(true, &[("FORCE_COLOR", "0")]));
    }
}
