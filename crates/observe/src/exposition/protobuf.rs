//! A text page as the stream of messages that Prometheus asks for first where it takes native histograms:
//! `io.prometheus.client.MetricFamily`, each behind its length.
//!
//! Made from the text, so that both always say the same. Pages of this crate have counters and gauges; anything else
//! goes as untyped.

/// Fields by the numbers that their messages give them.
mod field {
    pub const FAMILY_NAME: u8 = 1;
    pub const FAMILY_HELP: u8 = 2;
    pub const FAMILY_TYPE: u8 = 3;
    pub const FAMILY_METRIC: u8 = 4;
    pub const METRIC_LABEL: u8 = 1;
    pub const METRIC_TIMESTAMP: u8 = 6;
    pub const LABEL_NAME: u8 = 1;
    pub const LABEL_VALUE: u8 = 2;
    /// Of a gauge, a counter, and what is neither.
    pub const VALUE: u8 = 1;
}

const VARINT: u8 = 0;
const DOUBLE: u8 = 1;
const BYTES: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    Counter,
    Gauge,
    #[default]
    Untyped,
}

impl Kind {
    fn of(word: &[u8]) -> Self {
        match word {
            b"counter" => Self::Counter,
            b"gauge" => Self::Gauge,
            _ => Self::Untyped,
        }
    }

    /// `MetricType`.
    fn number(self) -> u64 {
        match self {
            Self::Counter => 0,
            Self::Gauge => 1,
            Self::Untyped => 3,
        }
    }

    /// Where a metric of this kind keeps its value.
    fn field(self) -> u8 {
        match self {
            Self::Gauge => 2,
            Self::Counter => 3,
            Self::Untyped => 5,
        }
    }
}

/// `page` is a whole text page. Lines that make no sense are left out.
pub fn delimited(page: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.len());
    let mut family = Family::default();
    for line in page.split(|&byte| byte == b'\n') {
        if let Some(rest) = line.strip_prefix(b"# HELP ") {
            let (name, help) = word(rest);
            family.turn_to(name, &mut out);
            unescape(help, &mut family.help);
        } else if let Some(rest) = line.strip_prefix(b"# TYPE ") {
            let (name, kind) = word(rest);
            family.turn_to(name, &mut out);
            family.kind = Kind::of(kind);
        } else if !line.is_empty() && !line.starts_with(b"#") {
            let end = line.iter().position(|b| matches!(b, b'{' | b' '));
            let (name, rest) = line.split_at(end.unwrap_or(line.len()));
            family.turn_to(name, &mut out);
            family.add(rest);
        }
    }
    family.turn_to(b"", &mut out);
    out
}

/// The family that is being gathered.
#[derive(Debug, Default)]
struct Family {
    name: Vec<u8>,
    help: Vec<u8>,
    kind: Kind,
    /// Its metrics, each behind tag and length.
    metrics: Vec<u8>,
    /// One metric, one label and one value, while they are put together.
    metric: Vec<u8>,
    label: Vec<u8>,
    text: Vec<u8>,
}

impl Family {
    /// Writes this family out where another begins.
    fn turn_to(&mut self, name: &[u8], out: &mut Vec<u8>) {
        if self.name == name {
            return;
        }
        if !self.metrics.is_empty() {
            let head = &mut self.metric;
            head.clear();
            bytes(field::FAMILY_NAME, &self.name, head);
            bytes(field::FAMILY_HELP, &self.help, head);
            tag(field::FAMILY_TYPE, VARINT, head);
            varint(self.kind.number(), head);
            varint((head.len() + self.metrics.len()) as u64, out);
            out.extend_from_slice(head);
            out.extend_from_slice(&self.metrics);
        }
        name.clone_into(&mut self.name);
        self.help.clear();
        self.metrics.clear();
        self.kind = Kind::default();
    }

    /// `rest` is what follows the name: labels, value, time.
    fn add(&mut self, rest: &[u8]) -> Option<()> {
        self.metric.clear();
        let rest = match rest.strip_prefix(b"{") {
            Some(labels) => self.labels(labels)?,
            None => rest,
        };
        let (value, at) = word(rest.trim_ascii_start());
        let value: f64 = std::str::from_utf8(value).ok()?.parse().ok()?;
        tag(self.kind.field(), BYTES, &mut self.metric);
        varint(9, &mut self.metric);
        tag(field::VALUE, DOUBLE, &mut self.metric);
        self.metric.extend_from_slice(&value.to_le_bytes());
        if !at.is_empty() {
            let at: i64 = std::str::from_utf8(at).ok()?.parse().ok()?;
            tag(field::METRIC_TIMESTAMP, VARINT, &mut self.metric);
            // Two's complement, as the format wants it.
            varint(at as u64, &mut self.metric);
        }
        bytes(field::FAMILY_METRIC, &self.metric, &mut self.metrics);
        Some(())
    }

    /// Takes labels up to the brace; returns what follows it.
    fn labels<'a>(&mut self, mut rest: &'a [u8]) -> Option<&'a [u8]> {
        loop {
            rest = rest.strip_prefix(b",").unwrap_or(rest);
            if let Some(after) = rest.strip_prefix(b"}") {
                return Some(after);
            }
            let equals = rest.iter().position(|&b| b == b'=')?;
            let (name, quoted) = (&rest[..equals], rest[equals + 1..].strip_prefix(b"\"")?);
            let end = closing_quote(quoted)?;
            unescape(&quoted[..end], &mut self.text);
            self.label.clear();
            bytes(field::LABEL_NAME, name, &mut self.label);
            bytes(field::LABEL_VALUE, &self.text, &mut self.label);
            bytes(field::METRIC_LABEL, &self.label, &mut self.metric);
            rest = &quoted[end + 1..];
        }
    }
}

/// Up to the first blank, and what follows it.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|&b| b == b' ') {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, b""),
    }
}

fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|&byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

fn unescape(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => out.push(b'\n'),
                Some(&byte) => out.push(byte),
                None => out.push(b'\\'),
            },
            byte => out.push(byte),
        }
    }
}

fn tag(field: u8, wire: u8, out: &mut Vec<u8>) {
    out.push(field << 3 | wire);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn bytes(field: u8, value: &[u8], out: &mut Vec<u8>) {
    tag(field, BYTES, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    // The published messages, as another implementation reads them.
    #[derive(Clone, PartialEq, Message)]
    struct MetricFamily {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        help: String,
        #[prost(int32, tag = "3")]
        kind: i32,
        #[prost(message, repeated, tag = "4")]
        metric: Vec<Metric>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Metric {
        #[prost(message, repeated, tag = "1")]
        label: Vec<LabelPair>,
        #[prost(message, optional, tag = "2")]
        gauge: Option<Value>,
        #[prost(message, optional, tag = "3")]
        counter: Option<Value>,
        #[prost(message, optional, tag = "5")]
        untyped: Option<Value>,
        #[prost(int64, optional, tag = "6")]
        timestamp_ms: Option<i64>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct LabelPair {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        value: String,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Value {
        #[prost(double, tag = "1")]
        value: f64,
    }

    fn families(page: &str) -> Vec<MetricFamily> {
        let stream = delimited(page.as_bytes());
        let mut rest = &stream[..];
        let mut found = Vec::new();
        while !rest.is_empty() {
            found.push(MetricFamily::decode_length_delimited(&mut rest).unwrap());
        }
        found
    }

    fn value(value: f64) -> Option<Value> {
        Some(Value { value })
    }

    #[test]
    fn a_page() {
        let page = concat!(
            "# HELP a_total How often, \\\\ in\\nall.\n",
            "# TYPE a_total counter\n",
            "a_total{cpu=\"total\",id=\"/\"} 1.5e+06 1794880479241\n",
            "a_total{cpu=\"\",id=\"a\\\\b\\\"c\\nd,}\"} 0 -1\n",
            "# HELP none Has no series.\n",
            "# TYPE none gauge\n",
            "# HELP b B.\n",
            "# TYPE b gauge\n",
            "b +Inf\n",
            "c{} NaN\n",
        );
        let found = families(page);
        let named: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.kind)).collect();
        assert_eq!(named, [("a_total", 0), ("b", 1), ("c", 3)]);
        assert_eq!(found[0].help, "How often, \\ in\nall.");
        let label = |name: &str, value: &str| LabelPair {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        assert_eq!(
            found[0].metric,
            [
                Metric {
                    label: vec![label("cpu", "total"), label("id", "/")],
                    counter: value(1.5e6),
                    timestamp_ms: Some(1_794_880_479_241),
                    ..Metric::default()
                },
                Metric {
                    label: vec![label("cpu", ""), label("id", "a\\b\"c\nd,}")],
                    counter: value(0.0),
                    timestamp_ms: Some(-1),
                    ..Metric::default()
                },
            ]
        );
        assert_eq!(found[1].metric[0].gauge, value(f64::INFINITY));
        assert!(found[2].metric[0].untyped.as_ref().unwrap().value.is_nan());
    }

    /// Byte for byte what the original's library makes of this page.
    #[test]
    fn as_the_original_writes_it() {
        let page = concat!(
            "# HELP m H\n# TYPE m gauge\nm{a=\"\"} 1\n",
            "# HELP n_total N\n# TYPE n_total counter\nn_total{b=\"c\"} 2.5 1794880479241\n",
        );
        let expected = concat!(
            "1c0a016d12014818012212 0a050a0161 1200 1209 09000000000000f03f",
            "2a0a076e5f746f74616c12014e1800221a 0a060a0162120163 1a09 090000000000000440 3089c0dab99e34",
        );
        let hex: String = delimited(page.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, expected.replace(' ', ""));
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out() {
        let page = "# TYPE a gauge\na{b=\"c} 1\na{b} 1\na x\na\na 1 y\na 2\n# b\n\n";
        let found = families(page);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].metric.len(), 1);
        assert_eq!(found[0].metric[0].gauge, value(2.0));
    }

    proptest! {
        #[test]
        fn nothing_panics(page in r#"([abc_# {}"=,\\0-9n\n]|# TYPE |# HELP |gauge){0,60}"#) {
            let stream = delimited(page.as_bytes());
            let mut rest = &stream[..];
            while !rest.is_empty() {
                prop_assert!(MetricFamily::decode_length_delimited(&mut rest).is_ok());
            }
        }
    }
}
