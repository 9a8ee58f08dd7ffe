//! The page of its own metrics in Prometheus' protobuf: families one after the other, each with its length before it.

use std::borrow::Cow;

use plimsoll_ground::rest::protobuf::{Message, varint};

/// Names of kinds by their numbers.
const KINDS: [&str; 5] = ["counter", "gauge", "summary", "untyped", "histogram"];

/// A page as this program writes it, not any page: series of a histogram follow each other, and end with their count.
pub fn delimited(page: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut family = Family::default();
    for line in page.lines() {
        if let Some(about) = line.strip_prefix("# HELP ") {
            std::mem::take(&mut family).write(&mut out);
            let (name, help) = about.split_once(' ').unwrap_or((about, ""));
            family.name = name;
            family.message.text(1, name);
            family.message.text(2, &unescaped(help));
        } else if let Some(about) = line.strip_prefix("# TYPE ") {
            let kind = about.rsplit(' ').next().unwrap_or_default();
            let number = KINDS.iter().position(|one| *one == kind).unwrap_or(3);
            family.kind = KINDS[number];
            family.message.integer(3, number as u64);
        } else {
            family.sample(line);
        }
    }
    family.write(&mut out);
    out
}

#[derive(Debug, Default)]
struct Family<'a> {
    name: &'a str,
    kind: &'static str,
    message: Message,
    buckets: Message,
    sum: f64,
}

impl<'a> Family<'a> {
    fn sample(&mut self, line: &'a str) {
        let Some((series, value)) = line.rsplit_once(' ') else {
            return;
        };
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, pairs(labels)),
            None => (series, Vec::new()),
        };
        let number = number(value);
        let mut one = Message::default();
        let field = match (self.kind, name.strip_prefix(self.name)) {
            ("histogram", Some("_bucket")) => return self.bucket(&labels, number),
            ("histogram", Some("_sum")) => {
                self.sum = number;
                return;
            }
            ("histogram", _) => {
                one.integer(1, number as u64);
                one.double(2, self.sum);
                one.0.append(&mut self.buckets.0);
                7
            }
            (kind, _) => {
                one.double(1, number);
                match kind {
                    "counter" => 3,
                    "gauge" => 2,
                    _ => 5,
                }
            }
        };
        let mut metric = Message::default();
        for (name, value) in &labels {
            let mut pair = Message::default();
            pair.text(1, name);
            pair.text(2, value);
            metric.message(1, &pair);
        }
        metric.message(field, &one);
        self.message.message(4, &metric);
    }

    /// The last, which has no bound, goes without saying.
    fn bucket(&mut self, labels: &[(&str, Cow<'_, str>)], count: f64) {
        let bound = labels.iter().find(|(name, _)| *name == "le");
        let bound = bound.map_or(f64::INFINITY, |(_, bound)| number(bound));
        if bound.is_finite() {
            let mut bucket = Message::default();
            bucket.integer(1, count as u64);
            bucket.double(2, bound);
            self.buckets.message(3, &bucket);
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        if !self.name.is_empty() {
            varint(out, self.message.0.len() as u64);
            out.extend(self.message.0);
        }
    }
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or(f64::NAN)
}

/// What stands between braces, the closing one included.
fn pairs(labels: &str) -> Vec<(&str, Cow<'_, str>)> {
    let mut found = Vec::new();
    let mut rest = labels;
    while let Some((name, others)) = rest.split_once("=\"") {
        let mut is_escaped = false;
        let end = others.find(|c| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        let Some(end) = end else {
            break;
        };
        found.push((name.trim_start_matches(','), unescaped(&others[..end])));
        rest = &others[end + 1..];
    }
    found
}

fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(match chars.next() {
                Some('n') => '\n',
                Some(other) => other,
                None => '\\',
            }),
            c => out.push(c),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(fill: impl FnOnce(&mut Message)) -> Message {
        let mut message = Message::default();
        fill(&mut message);
        message
    }

    #[test]
    fn a_page() {
        let page = "# HELP a Of a.\n# TYPE a counter\na{x=\"1,\\\"}\",y=\"\"} 5\n\
            # HELP h Of h.\n# TYPE h histogram\nh_bucket{x=\"z\",le=\"0.5\"} 1\nh_bucket{x=\"z\",le=\"+Inf\"} 2\n\
            h_sum{x=\"z\"} 3.25\nh_count{x=\"z\"} 2\n# HELP g Of g.\n# TYPE g gauge\n";
        let pair = |name: &str, value: &str| {
            message(|pair| {
                pair.text(1, name);
                pair.text(2, value);
            })
        };
        let counter = message(|family| {
            family.text(1, "a");
            family.text(2, "Of a.");
            family.integer(3, 0);
            family.message(
                4,
                &message(|metric| {
                    metric.message(1, &pair("x", "1,\"}"));
                    metric.message(1, &pair("y", ""));
                    metric.message(3, &message(|value| value.double(1, 5.0)));
                }),
            );
        });
        let histogram = message(|family| {
            family.text(1, "h");
            family.text(2, "Of h.");
            family.integer(3, 4);
            let value = message(|value| {
                value.integer(1, 2);
                value.double(2, 3.25);
                let bucket = message(|bucket| {
                    bucket.integer(1, 1);
                    bucket.double(2, 0.5);
                });
                value.message(3, &bucket);
            });
            family.message(
                4,
                &message(|metric| {
                    metric.message(1, &pair("x", "z"));
                    metric.message(7, &value);
                }),
            );
        });
        let gauge = message(|family| {
            family.text(1, "g");
            family.text(2, "Of g.");
            family.integer(3, 1);
        });
        let mut expected = Vec::new();
        for family in [counter, histogram, gauge] {
            varint(&mut expected, family.0.len() as u64);
            expected.extend(family.0);
        }
        assert_eq!(delimited(page), expected);
    }
}
