//! The name under which a client owns fields.

use crate::field::{FieldError, Path};

const MAX_LENGTH: usize = 128;

/// The name that the client gives, or else what its user agent is called before the first slash.
pub fn manager_name(given: &str, user_agent: &str) -> String {
    if !given.is_empty() {
        return given.to_owned();
    }
    let mut name = String::new();
    let product = user_agent.split('/').next().unwrap_or_default();
    for c in product.chars().filter(|c| is_printable(*c)) {
        if name.len() + c.len_utf8() > MAX_LENGTH {
            break;
        }
        name.push(c);
    }
    name
}

/// What is wrong with the request's `fieldManager`.
pub fn validate_manager(given: &str) -> Vec<FieldError> {
    let path = Path::new("fieldManager");
    let mut errors = Vec::new();
    if given.len() > MAX_LENGTH {
        errors.push(FieldError::too_long(&path, MAX_LENGTH));
    }
    for (position, c) in given.char_indices().filter(|(_, c)| !is_printable(*c)) {
        errors.push(FieldError::invalid(
            &path,
            given,
            format!(
                "invalid character U+{:04X} (at position {position})",
                c as u32
            ),
        ));
    }
    errors
}

/// As Go sees it: letters, marks, numbers, punctuation, symbols and the ordinary space.
fn is_printable(c: char) -> bool {
    let invisible = matches!(
        c,
        '\u{ad}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{e000}'..='\u{f8ff}'
            | '\u{fffe}'..='\u{ffff}'
            | '\u{e0000}'..='\u{10ffff}'
    );
    c == ' ' || !(c.is_control() || c.is_whitespace() || invisible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_or_found() {
        assert_eq!(manager_name("me", "kubectl/v1"), "me");
        assert_eq!(manager_name("", "kubectl/v1.36 (linux)"), "kubectl");
        assert_eq!(manager_name("", "a\u{7}b\u{200b}c d"), "abc d");
        assert_eq!(manager_name("", &"é".repeat(100)).chars().count(), 64);
        assert_eq!(manager_name("", ""), "");
    }

    #[test]
    fn names_that_are_refused() {
        assert_eq!(validate_manager("kubectl-client-side-apply"), []);
        let shown = |name: &str| {
            let errors = validate_manager(name);
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            shown(&"x".repeat(129)),
            ["fieldManager: Too long: may not be more than 128 bytes"]
        );
        assert_eq!(
            shown("a\tb"),
            ["fieldManager: Invalid value: \"a\\tb\": invalid character U+0009 (at position 1)"]
        );
    }
}
