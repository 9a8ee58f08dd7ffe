//! Named formats: what is wrong with a text, in the words of the API server.

use std::cell::RefCell;
use std::collections::BTreeMap;

use regex::Regex;

pub const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_WORDS: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN_WORDS: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const OLD_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const OLD_LABEL_WORDS: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const VALUE_WORDS: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// A format under the name that expressions know it by.
pub fn named(name: &str) -> Option<&'static str> {
    NAMES.into_iter().find(|known| *known == name)
}

pub fn objections(format: &str, text: &str) -> Vec<String> {
    // Of a prefix the rest is still to come, so it may end in a dash.
    let whole = |text: &str| match text.strip_suffix('-') {
        Some(start) => format!("{start}a"),
        None => text.to_owned(),
    };
    let subdomain = format!("{LABEL}(\\.{LABEL})*");
    match format {
        "dns1123Label" => name(text, 63, LABEL, LABEL_WORDS, &["my-name", "123-abc"]),
        "dns1123LabelPrefix" => name(
            &whole(text),
            63,
            LABEL,
            LABEL_WORDS,
            &["my-name", "123-abc"],
        ),
        "dns1123Subdomain" => name(text, 253, &subdomain, SUBDOMAIN_WORDS, &["example.com"]),
        "dns1123SubdomainPrefix" => name(
            &whole(text),
            253,
            &subdomain,
            SUBDOMAIN_WORDS,
            &["example.com"],
        ),
        "dns1035Label" => name(
            text,
            63,
            OLD_LABEL,
            OLD_LABEL_WORDS,
            &["my-name", "abc-123"],
        ),
        "dns1035LabelPrefix" => name(
            &whole(text),
            63,
            OLD_LABEL,
            OLD_LABEL_WORDS,
            &["my-name", "abc-123"],
        ),
        "qualifiedName" => qualified_name(text),
        "labelValue" => name(
            text,
            63,
            &format!("({QUALIFIED})?"),
            VALUE_WORDS,
            &["MyValue", "my_value", "12345"],
        ),
        "uri" => plainly(crate::values::Url::parse(text).is_some(), "invalid URL"),
        "uuid" => plainly(
            matches(
                "(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}",
                text,
            ),
            "does not match the UUID format",
        ),
        "byte" => plainly(
            base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).is_ok(),
            "invalid base64",
        ),
        "date" => plainly(
            crate::time::of_field("date", text).is_some(),
            "invalid date",
        ),
        "datetime" => plainly(crate::time::timestamp(text).is_some(), "invalid datetime"),
        _ => Vec::new(),
    }
}

fn plainly(fine: bool, words: &str) -> Vec<String> {
    if fine {
        Vec::new()
    } else {
        vec![words.to_owned()]
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    thread_local! {
        /// The few patterns that formats have. To read one takes longer than to try it.
        static KNOWN: RefCell<BTreeMap<String, Option<Regex>>> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| {
        let read = || Regex::new(&format!("^({pattern})$")).ok();
        let pattern = known.entry(pattern.to_owned()).or_insert_with(read);
        pattern
            .as_ref()
            .is_some_and(|pattern| pattern.is_match(text))
    })
}

/// How long the pattern of a format is, as the original's costs have it.
pub fn pattern_size(format: &str) -> u64 {
    match format {
        "dns1123Subdomain" | "dns1123SubdomainPrefix" | "qualifiedName" => 60,
        "labelValue" => 40,
        name if name.starts_with("dns") => 30,
        _ => 80,
    }
}

fn name(text: &str, longest: usize, pattern: &str, words: &str, examples: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    if text.len() > longest {
        found.push(too_long(longest));
    }
    if !matches(pattern, text) {
        found.push(regex_words(words, pattern, examples));
    }
    found
}

fn too_long(longest: usize) -> String {
    format!("must be no more than {longest} bytes")
}

fn regex_words(words: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples
        .iter()
        .map(|example| format!("'{example}', "))
        .collect();
    let examples = examples.join(" or ");
    format!("{words} (e.g. {examples}regex used for validation is '{pattern}')")
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let own = match parts.as_slice() {
        [own] => own,
        [prefix, own] => {
            if prefix.is_empty() {
                found.push("prefix part must be non-empty".to_owned());
            } else {
                let wrong = objections("dns1123Subdomain", prefix);
                found.extend(
                    wrong
                        .into_iter()
                        .map(|words| format!("prefix part {words}")),
                );
            }
            own
        }
        _ => {
            let words = format!("a qualified name {QUALIFIED_WORDS}");
            let shown = regex_words(&words, QUALIFIED, &["MyName", "my.name", "123-abc"]);
            found.push(format!(
                "{shown} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return found;
        }
    };
    if own.is_empty() {
        found.push("name part must be non-empty".to_owned());
    } else if own.len() > 63 {
        found.push(format!("name part {}", too_long(63)));
    }
    if !matches(QUALIFIED, own) {
        let shown = regex_words(
            QUALIFIED_WORDS,
            QUALIFIED,
            &["MyName", "my.name", "123-abc"],
        );
        found.push(format!("name part {shown}"));
    }
    found
}
