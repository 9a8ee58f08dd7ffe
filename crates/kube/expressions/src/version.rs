//! Semantic versions, with the complaints of the original's parser.

use std::cmp::Ordering;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub numbers: [u64; 3],
    /// Empty: it is released.
    before: Vec<Part>,
}

/// Numbers come before words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(String),
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_word(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn has_leading_zeroes(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0')
}

fn number(text: &str, which: &str) -> Result<u64, String> {
    if !is_number(text) {
        let which = which.to_lowercase();
        return Err(format!(
            "Invalid character(s) found in {which} number {text:?}"
        ));
    }
    if has_leading_zeroes(text) {
        return Err(format!(
            "{which} number must not contain leading zeroes {text:?}"
        ));
    }
    parsed(text)
}

fn parsed(text: &str) -> Result<u64, String> {
    let what = if text.is_empty() {
        "invalid syntax"
    } else {
        "value out of range"
    };
    text.parse()
        .map_err(|_| format!("strconv.ParseUint: parsing {text:?}: {what}"))
}

fn part(text: &str) -> Result<Part, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if is_number(text) {
        if has_leading_zeroes(text) {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {text:?}"
            ));
        }
        return Ok(Part::Number(parsed(text)?));
    }
    match is_word(text) {
        true => Ok(Part::Word(text.to_owned())),
        false => Err(format!("Invalid character(s) found in prerelease {text:?}")),
    }
}

impl Version {
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts[..] else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (major, minor) = (number(major, "Major")?, number(minor, "Minor")?);
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, before) = match rest.split_once('-') {
            Some((patch, before)) => (patch, Some(before)),
            None => (rest, None),
        };
        let patch = number(patch, "Patch")?;
        let before = before.into_iter().flat_map(|before| before.split('.'));
        let before = before.map(part).collect::<Result<_, _>>()?;
        for word in build.into_iter().flat_map(|build| build.split('.')) {
            if word.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_word(word) {
                return Err(format!(
                    "Invalid character(s) found in build meta data {word:?}"
                ));
            }
        }
        Ok(Self {
            numbers: [major, minor, patch],
            before,
        })
    }

    /// With a `v` in front, leading zeroes, and without a minor or patch number if need be.
    pub fn parse_lenient(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text
            .splitn(3, '.')
            .map(|part| {
                let bare = part.trim_start_matches('0');
                let needs_one = !bare.starts_with(|c: char| c.is_ascii_digit());
                match part.len() > 1 {
                    true if needs_one => format!("0{bare}"),
                    true => bare.to_owned(),
                    false => part.to_owned(),
                }
            })
            .collect();
        let is_short = parts.len() < 3;
        if is_short && parts.last().is_some_and(|part| part.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        while parts.len() < 3 {
            parts.push("0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    pub fn compare(&self, other: &Self) -> Ordering {
        let released = |version: &Self| version.before.is_empty();
        self.numbers
            .cmp(&other.numbers)
            .then_with(|| released(self).cmp(&released(other)))
            .then_with(|| self.before.cmp(&other.before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_version() {
        for (text, problem) in [
            ("1.2.3-rc.1+b.7", None),
            ("", Some("Version string empty")),
            ("1.2", Some("No Major.Minor.Patch elements found")),
            (
                "v1.2.3",
                Some("Invalid character(s) found in major number \"v1\""),
            ),
            (
                "1.02.3",
                Some("Minor number must not contain leading zeroes \"02\""),
            ),
            (
                "1.2.3.4",
                Some("Invalid character(s) found in patch number \"3.4\""),
            ),
            ("1.2.3-", Some("Prerelease is empty")),
            (
                "1.2.3-01",
                Some("Numeric PreRelease version must not contain leading zeroes \"01\""),
            ),
            ("1.2.3+", Some("Build meta data is empty")),
        ] {
            assert_eq!(Version::parse(text).err().as_deref(), problem, "{text}");
        }
    }

    #[test]
    fn what_is_meant() {
        let strict = |text: &str| Version::parse(text).unwrap();
        for (text, meant) in [
            ("v1", "1.0.0"),
            ("01.002", "1.2.0"),
            ("v1.0.03-rc.1", "1.0.3-rc.1"),
            ("00.0.0", "0.0.0"),
        ] {
            assert_eq!(Version::parse_lenient(text).unwrap(), strict(meant));
        }
        assert!(Version::parse_lenient("1.2-rc").is_err());
        assert!(strict("1.2.3-2").compare(&strict("1.2.3-10")).is_lt());
        assert!(strict("1.2.3-10").compare(&strict("1.2.3-a")).is_lt());
        assert!(strict("1.10.0").compare(&strict("1.9.9")).is_gt());
        assert!(strict("1.0.0-rc.1").compare(&strict("1.0.0")).is_lt());
    }
}
