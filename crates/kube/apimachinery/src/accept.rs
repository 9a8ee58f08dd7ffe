//! The `Accept` header, read as Kubernetes' servers read it: one header, whatever follows it, and its clauses best first.

use http::header::{self, HeaderMap};

/// One of the media types that a client takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f64,
    parameters: &'a str,
}

/// What the client says that it takes; empty: anything.
pub fn header(headers: &HeaderMap) -> &str {
    let said = headers.get(header::ACCEPT);
    said.and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// Best first. What is no media type is passed over, so that there may be none.
pub fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = header.split(',').filter_map(Clause::read).collect();
    // Going before others is no order: a type by name goes before `*` even if that is liked better. What comes of it
    // depends on who is held against whom, so it is done in the very steps of the original.
    for end in 1..clauses.len() {
        for at in (1..=end).rev() {
            if !clauses[at].goes_before(&clauses[at - 1]) {
                break;
            }
            clauses.swap(at, at - 1);
        }
    }
    clauses
}

/// The media types of the clauses as they are written, in the client's order.
pub fn names(header: &str) -> impl Iterator<Item = &str> {
    header
        .split(',')
        .map(|one| blankless(one.split(';').next().unwrap_or_default()))
}

impl<'a> Clause<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let text = blankless(text);
        let (media, parameters) = text.split_once(';').unwrap_or((text, ""));
        let (kind, subtype) = match media.split_once('/') {
            Some((kind, subtype)) if !subtype.is_empty() => (blankless(kind), subtype),
            _ => (blankless(media.trim_end_matches('/')), ""),
        };
        let subtype = match subtype {
            "" if kind == "*" => "*",
            "" => return None,
            // A slash may end it.
            _ => match subtype.split_once('/') {
                Some((subtype, "")) => subtype,
                Some(_) => return None,
                None => subtype,
            },
        };
        let mut clause = Self {
            kind,
            subtype: blankless(subtype),
            quality: 1.0,
            parameters,
        };
        for (name, value) in pairs(parameters) {
            if name == "q" {
                clause.quality = value.parse().unwrap_or(0.0);
            }
        }
        Some(clause)
    }

    fn goes_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }

    /// Whether a type such as `application/json` is meant.
    pub fn takes(&self, media: &str) -> bool {
        let Some((kind, subtype)) = media.split_once('/') else {
            return false;
        };
        match (self.kind, self.subtype) {
            ("*", "*") => true,
            (known, "*") => known == kind,
            known => known == (kind, subtype),
        }
    }

    /// The same for documents that are no resources: there `*/json` is a kind of JSON, too.
    pub fn takes_loosely(&self, media: &str) -> bool {
        let subtype = media.split_once('/').map(|(_, subtype)| subtype);
        self.takes(media) || self.kind == "*" && Some(self.subtype) == subtype
    }

    /// The parameters that have a value. Of several by one name the last counts.
    pub fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        pairs(self.parameters).map(|(name, value)| (name, blankless(value)))
    }

    /// The value of a parameter; empty: it is not given.
    pub fn parameter(&self, name: &str) -> &'a str {
        let given = self.parameters().filter(|(known, _)| *known == name);
        given.last().map_or("", |(_, value)| value)
    }
}

fn blankless(text: &str) -> &str {
    text.trim_matches(' ')
}

fn pairs(parameters: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = parameters.split(';').filter_map(|one| one.split_once('='));
    pairs.filter_map(|(name, value)| {
        let value = value.strip_suffix('=').unwrap_or(value);
        let usable = !value.is_empty() && !value.contains('=');
        usable.then_some((blankless(name), value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, expected: &[&str]) {
        let found: Vec<String> = clauses(header)
            .iter()
            .map(|one| format!("{}/{}", one.kind, one.subtype))
            .collect();
        assert_eq!(found, expected, "{header}");
    }

    #[test]
    fn best_first() {
        check("a/b, c/d", &["a/b", "c/d"]);
        check("a/b;q=0.1, c/d;q=0.9", &["c/d", "a/b"]);
        check("a/b;q=x, c/d;q=0.1", &["c/d", "a/b"]);
        check("a/b;q= 1, c/d;q=0.1", &["c/d", "a/b"]);
        // What is named goes first, however little it is liked.
        check("*/*, a/b;q=0.1", &["a/b", "*/*"]);
        check("a/*, a/b;q=0.1", &["a/b", "a/*"]);
    }

    #[test]
    fn what_is_no_media_type() {
        check("", &[]);
        check(", ,", &[]);
        check("garbage, a/b/c, a/", &[]);
        check("*, a /b, c/ d", &["a/b", "c/d", "*/*"]);
    }

    #[test]
    fn parameters_and_their_values() {
        let clause = clauses("a/b ; as = Table;v=;g==;x;as=List;q=0.5")[0];
        assert_eq!(clause.parameter("as"), "List");
        assert_eq!(clause.parameter("v"), "");
        assert_eq!(clause.parameter("g"), "");
        assert_eq!(clause.parameter("x"), "");
        assert_eq!(clause.quality, 0.5);
    }

    #[test]
    fn who_takes_what() {
        let takes = |clause: &str, media: &str| clauses(clause)[0].takes(media);
        assert!(takes("*/*", "application/json"));
        assert!(takes("*", "application/json"));
        assert!(takes("application/*", "application/json"));
        assert!(takes("application/json;a=b", "application/json"));
        assert!(!takes("*/json", "application/json"));
        assert!(!takes("Application/JSON", "application/json"));
    }
}
