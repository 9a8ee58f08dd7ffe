//! Names for what a server chooses anew in every run: uids, versions, times, generated names.

use jiff::Timestamp;

/// What kind of thing a placeholder stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Namespace,
    Uid,
    Version,
    Time,
    MicroTime,
    Continue,
    Generated,
    Ip,
    NodePort,
    Token,
    Host,
    Age,
}

const KINDS: &[(Kind, &str)] = &[
    (Kind::Namespace, "ns"),
    (Kind::Uid, "uid"),
    (Kind::Version, "rv"),
    (Kind::Time, "time"),
    (Kind::MicroTime, "microtime"),
    (Kind::Continue, "continue"),
    (Kind::Generated, "gen"),
    (Kind::Ip, "ip"),
    (Kind::NodePort, "nodeport"),
    (Kind::Token, "jwt"),
    (Kind::Host, "host"),
    (Kind::Age, "age"),
];

/// A kind, with a number where it matters that two are the same or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placeholder {
    pub kind: Kind,
    pub number: Option<usize>,
}

impl Placeholder {
    pub fn any(kind: Kind) -> Self {
        Self { kind, number: None }
    }

    pub fn numbered(kind: Kind, number: usize) -> Self {
        Self {
            kind,
            number: Some(number),
        }
    }

    pub fn text(self) -> String {
        let name = KINDS.iter().find(|(kind, _)| *kind == self.kind);
        let name = name.map_or("", |(_, name)| name);
        match self.number {
            Some(number) => format!("<{name}-{number}>"),
            None => format!("<{name}>"),
        }
    }

    /// The placeholder that a text starts with, and its length. `<none>` and its like are ordinary text.
    pub fn at_start(text: &str) -> Option<(Self, usize)> {
        let inside = text.strip_prefix('<')?;
        let inside = &inside[..inside.find('>')?];
        let (name, number) = match inside.rsplit_once('-') {
            Some((name, number)) => (name, Some(number.parse().ok()?)),
            None => (inside, None),
        };
        let (kind, _) = KINDS.iter().find(|(_, known)| *known == name)?;
        let placeholder = Self {
            kind: *kind,
            number,
        };
        Some((placeholder, inside.len() + 2))
    }

    /// How much of a text's start this can stand for; `None` when it cannot.
    pub fn extent(self, text: &str) -> Option<usize> {
        let run = |allowed: fn(char) -> bool| {
            let end = text.find(|letter| !allowed(letter)).unwrap_or(text.len());
            (end > 0).then_some(end)
        };
        match self.kind {
            Kind::Namespace => None,
            Kind::Uid => uuid(text),
            Kind::Version | Kind::NodePort => run(|letter| letter.is_ascii_digit()),
            Kind::Time => time(text).filter(|length| *length == 20),
            Kind::MicroTime => time(text).filter(|length| *length > 20),
            Kind::Continue => (!text.is_empty()).then_some(text.len()),
            Kind::Generated => run(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
                .filter(|length| *length >= 5)
                .map(|_| 5),
            Kind::Ip => run(|letter| letter.is_ascii_hexdigit() || ".:".contains(letter)),
            Kind::Token => token(text),
            Kind::Host => run(|letter| letter.is_ascii_alphanumeric() || ".:-".contains(letter)),
            Kind::Age => run(|letter| letter.is_ascii_digit() || "smhdy".contains(letter)),
        }
    }
}

/// Length of the uuid that a text starts with.
pub fn uuid(text: &str) -> Option<usize> {
    const LENGTH: usize = 36;
    let bytes = text.as_bytes().get(..LENGTH)?;
    let fits = bytes.iter().enumerate().all(|(index, byte)| match index {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(byte),
    });
    fits.then_some(LENGTH)
}

/// Length of the RFC 3339 time in UTC that a text starts with.
pub fn time(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.get(4) != Some(&b'-') || bytes.get(10) != Some(&b'T') {
        return None;
    }
    let length = bytes.iter().take(40).position(|byte| *byte == b'Z')? + 1;
    let digits = bytes[..length - 1]
        .iter()
        .all(|byte| byte.is_ascii_digit() || b"-:.T".contains(byte));
    digits.then_some(length)
}

/// Whether a time is of this run, rather than one that a request named.
pub fn is_recent(time: &str) -> bool {
    const DAY: i64 = 24 * 60 * 60;
    time.parse::<Timestamp>()
        .is_ok_and(|time| (time.as_second() - Timestamp::now().as_second()).abs() < DAY)
}

/// Length of the signed token that a text starts with.
pub fn token(text: &str) -> Option<usize> {
    if !text.starts_with("eyJ") {
        return None;
    }
    let end = text
        .find(|letter: char| !(letter.is_ascii_alphanumeric() || "-_.".contains(letter)))
        .unwrap_or(text.len());
    (text[..end].matches('.').count() == 2).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_told_from_ordinary_text() {
        let check = |text: &str, expected: Option<(Placeholder, usize)>| {
            assert_eq!(Placeholder::at_start(text), expected, "{text}");
        };
        check("<uid-2>!", Some((Placeholder::numbered(Kind::Uid, 2), 7)));
        check("<time>", Some((Placeholder::any(Kind::Time), 6)));
        check("<none>", None);
        check("<nil>", None);
        check("a<uid-1>", None);
    }

    #[test]
    fn extents() {
        let check = |kind: Kind, text: &str, expected: Option<usize>| {
            assert_eq!(Placeholder::any(kind).extent(text), expected, "{text}");
        };
        check(Kind::Uid, "0b7c6a5e-1111-4222-8333-444444444444x", Some(36));
        check(Kind::Uid, "0b7c6a5e", None);
        check(Kind::Version, "123 and", Some(3));
        check(Kind::Version, "", None);
        check(Kind::Time, "2026-01-02T03:04:05Z", Some(20));
        check(Kind::Time, "2026-01-02T03:04:05.000000Z", None);
        check(Kind::MicroTime, "2026-01-02T03:04:05.000000Z", Some(27));
        check(Kind::Token, "eyJa.b.c d", Some(8));
    }
}
