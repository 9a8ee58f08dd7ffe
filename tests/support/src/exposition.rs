//! The Prometheus text format, read back.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
    /// Milliseconds since the epoch.
    pub timestamp: Option<i64>,
}

impl Sample {
    /// The label's value; a label that is not there is the empty one, as Prometheus sees it.
    pub fn label(&self, key: &str) -> &str {
        self.labels.get(key).map_or("", String::as_str)
    }
}

#[derive(Debug, Default)]
pub struct Exposition {
    pub samples: Vec<Sample>,
}

impl Exposition {
    pub fn parse(text: &str) -> Result<Self> {
        let mut samples = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let sample = parse_sample(line)
                .with_context(|| format!("exposition line {}: {line:?}", index + 1))?;
            samples.push(sample);
        }
        Ok(Self { samples })
    }

    /// Every sample of a family that has all of these labels.
    pub fn all<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(key, value)| sample.label(key) == *value)
        })
    }

    pub fn first(&self, name: &str, labels: &[(&str, &str)]) -> Option<&Sample> {
        self.samples.iter().find(|sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(key, value)| sample.label(key) == *value)
        })
    }

    /// The one sample's value; none or several are errors that name it.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        let found: Vec<&Sample> = self.all(name, labels).collect();
        match found.as_slice() {
            [one] => Ok(one.value),
            [] => bail!("no sample {name}{labels:?}"),
            several => bail!("{} samples {name}{labels:?}", several.len()),
        }
    }

    /// The sum over the samples: cpu usage per cpu on cgroup v1, operations over devices.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        let found: Vec<&Sample> = self.all(name, labels).collect();
        if found.is_empty() {
            bail!("no sample {name}{labels:?}");
        }
        Ok(found.iter().map(|sample| sample.value).sum())
    }
}

fn parse_sample(line: &str) -> Result<Sample> {
    let name_end = line
        .find(['{', ' '])
        .context("neither labels nor a value")?;
    let name = line[..name_end].to_owned();
    let mut rest = &line[name_end..];
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = parse_labels(inside, &mut labels)?;
    }
    let mut words = rest.split_ascii_whitespace();
    let value = words.next().context("no value")?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        number => number
            .parse()
            .with_context(|| format!("value {number:?}"))?,
    };
    let timestamp = words
        .next()
        .map(|word| word.parse().with_context(|| format!("timestamp {word:?}")))
        .transpose()?;
    if let Some(extra) = words.next() {
        bail!("unexpected {extra:?}");
    }
    Ok(Sample {
        name,
        labels,
        value,
        timestamp,
    })
}

/// Reads `k="v",…}` and gives what follows the brace.
fn parse_labels<'a>(mut rest: &'a str, labels: &mut BTreeMap<String, String>) -> Result<&'a str> {
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Ok(after);
        }
        let (key, after) = rest.split_once("=\"").context("label without a value")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next() {
                Some((at, '"')) => break at,
                Some((_, '\\')) => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, other)) => value.push(other),
                    None => bail!("label {key} ends in a backslash"),
                },
                Some((_, other)) => value.push(other),
                None => bail!("label {key} is not closed"),
            }
        };
        if labels.insert(key.to_owned(), value).is_some() {
            bail!("label {key} twice");
        }
        rest = &after[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_escapes_and_timestamps() {
        let text = "# HELP a b\n# TYPE a counter\na{id=\"/x\",name=\"q\\\"\\\\\\n}\"} 1.5e+06 1395066363000\nb 2\n";
        let parsed = Exposition::parse(text).unwrap();
        assert_eq!(parsed.samples[0].label("name"), "q\"\\\n}");
        assert_eq!(parsed.samples[0].value, 1_500_000.0);
        assert_eq!(parsed.samples[0].timestamp, Some(1_395_066_363_000));
        assert_eq!(parsed.value("b", &[]).unwrap(), 2.0);
        assert_eq!(parsed.sum("a", &[("id", "/x")]).unwrap(), 1_500_000.0);
        assert!(parsed.value("a", &[("id", "/y")]).is_err());
    }

    #[test]
    fn broken_lines_are_named() {
        for line in [
            "a{b=\"c} 1",
            "a{b=\"c\"} x",
            "a",
            "a 1 2 3",
            "a{b=\"\",b=\"\"} 1",
        ] {
            let error = Exposition::parse(line).unwrap_err();
            assert!(
                error.to_string().starts_with("exposition line 1"),
                "{error}"
            );
        }
    }
}
