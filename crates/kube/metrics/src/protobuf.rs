//! A text page as the stream of messages that Prometheus asks for first where it takes native histograms:
//! `io.prometheus.client.MetricFamily`, each behind its length.
//!
//! Made from the text, so that both always say the same: counters, gauges and histograms; anything else goes as untyped.
//! Series of a histogram follow each other and end with their count, as [`super::Exposition`] writes them.

use plimsoll_golang::protowire::{Message, varint};

/// Fields by the numbers that their messages give them.
pub mod field {
    pub const FAMILY_NAME: u64 = 1;
    pub const FAMILY_HELP: u64 = 2;
    pub const FAMILY_TYPE: u64 = 3;
    pub const FAMILY_METRIC: u64 = 4;
    pub const METRIC_LABEL: u64 = 1;
    pub const METRIC_TIMESTAMP: u64 = 6;
    pub const LABEL_NAME: u64 = 1;
    pub const LABEL_VALUE: u64 = 2;
    /// Of a gauge, a counter, and what is neither.
    pub const VALUE: u64 = 1;
    pub const HISTOGRAM_COUNT: u64 = 1;
    pub const HISTOGRAM_SUM: u64 = 2;
    pub const HISTOGRAM_BUCKET: u64 = 3;
    pub const BUCKET_COUNT: u64 = 1;
    pub const BUCKET_BOUND: u64 = 2;
}

/// What a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetricType {
    Counter,
    Gauge,
    #[default]
    Untyped,
    Histogram,
}

impl MetricType {
    fn of(word: &[u8]) -> Self {
        match word {
            b"counter" => Self::Counter,
            b"gauge" => Self::Gauge,
            b"histogram" => Self::Histogram,
            _ => Self::Untyped,
        }
    }

    pub fn number(self) -> u64 {
        match self {
            Self::Counter => 0,
            Self::Gauge => 1,
            Self::Untyped => 3,
            Self::Histogram => 4,
        }
    }

    /// Where a metric of this kind keeps its value.
    pub fn field(self) -> u64 {
        match self {
            Self::Gauge => 2,
            Self::Counter => 3,
            Self::Untyped => 5,
            Self::Histogram => 7,
        }
    }
}

/// `page` is a whole text page. Lines that make no sense are left out.
pub fn to_delimited_protobuf(page: &[u8]) -> Vec<u8> {
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
            family.kind = Some(MetricType::of(kind));
        } else if !line.is_empty() && !line.starts_with(b"#") {
            let end = line.iter().position(|b| matches!(b, b'{' | b' '));
            let (name, rest) = line.split_at(end.unwrap_or(line.len()));
            let part = family.part(name);
            if part == Part::Value {
                family.turn_to(name, &mut out);
            }
            family.add(part, rest);
        }
    }
    family.turn_to(b"", &mut out);
    out
}

/// What a line says of its metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Value,
    Bucket,
    Sum,
    Count,
}

/// The family that is being gathered.
#[derive(Debug, Default)]
struct Family {
    name: Vec<u8>,
    help: Vec<u8>,
    /// Once the page has said it.
    kind: Option<MetricType>,
    metrics: Message,
    /// What is known of a histogram before its count.
    buckets: Message,
    sum: f64,
    /// One metric, one label, one value, and a text, while they are put together.
    metric: Message,
    label: Message,
    value: Message,
    text: Vec<u8>,
}

impl Family {
    /// Which part of this family's metrics is called so; a value where it is none.
    fn part(&self, name: &[u8]) -> Part {
        if self.kind != Some(MetricType::Histogram) {
            return Part::Value;
        }
        match name.strip_prefix(self.name.as_slice()) {
            Some(b"_bucket") => Part::Bucket,
            Some(b"_sum") => Part::Sum,
            Some(b"_count") => Part::Count,
            _ => Part::Value,
        }
    }

    /// Writes this family out where another begins. One that the page declares is there without metrics, too.
    fn turn_to(&mut self, name: &[u8], out: &mut Vec<u8>) {
        if self.name == name {
            return;
        }
        if self.kind.is_some() || !self.metrics.0.is_empty() {
            let head = &mut self.metric;
            head.0.clear();
            head.bytes(field::FAMILY_NAME, &self.name);
            head.bytes(field::FAMILY_HELP, &self.help);
            head.integer(field::FAMILY_TYPE, self.kind.unwrap_or_default().number());
            varint(out, (head.0.len() + self.metrics.0.len()) as u64);
            out.extend_from_slice(&head.0);
            out.extend_from_slice(&self.metrics.0);
        }
        name.clone_into(&mut self.name);
        self.help.clear();
        self.metrics.0.clear();
        self.buckets.0.clear();
        self.kind = None;
    }

    /// `rest` is what follows the name: labels, value, time.
    fn add(&mut self, part: Part, rest: &[u8]) -> Option<()> {
        self.metric.0.clear();
        let (rest, bound) = match rest.strip_prefix(b"{") {
            Some(labels) => self.labels(labels)?,
            None => (rest, None),
        };
        let (number, at) = word(rest.trim_ascii_start());
        let number = parse(number)?;
        self.value.0.clear();
        match part {
            Part::Bucket => return self.bucket(bound?, number),
            Part::Sum => {
                self.sum = number;
                return Some(());
            }
            Part::Count => {
                self.value.integer(field::HISTOGRAM_COUNT, number as u64);
                self.value.double(field::HISTOGRAM_SUM, self.sum);
                self.value.0.append(&mut self.buckets.0);
            }
            Part::Value => self.value.double(field::VALUE, number),
        }
        let kind = self.kind.unwrap_or_default();
        self.metric.message(kind.field(), &self.value);
        if !at.is_empty() {
            let at: i64 = std::str::from_utf8(at).ok()?.parse().ok()?;
            // Two's complement, as the format wants it.
            self.metric.integer(field::METRIC_TIMESTAMP, at as u64);
        }
        self.metrics.message(field::FAMILY_METRIC, &self.metric);
        Some(())
    }

    /// The last, which has no bound, goes without saying.
    fn bucket(&mut self, bound: f64, count: f64) -> Option<()> {
        if bound.is_finite() {
            self.value.integer(field::BUCKET_COUNT, count as u64);
            self.value.double(field::BUCKET_BOUND, bound);
            self.buckets.message(field::HISTOGRAM_BUCKET, &self.value);
        }
        Some(())
    }

    /// Takes labels up to the brace; returns what follows it, and the bound if there is one.
    fn labels<'a>(&mut self, mut rest: &'a [u8]) -> Option<(&'a [u8], Option<f64>)> {
        let mut bound = None;
        loop {
            rest = rest.strip_prefix(b",").unwrap_or(rest);
            if let Some(after) = rest.strip_prefix(b"}") {
                return Some((after, bound));
            }
            let equals = rest.iter().position(|&b| b == b'=')?;
            let (name, quoted) = (&rest[..equals], rest[equals + 1..].strip_prefix(b"\"")?);
            let end = closing_quote(quoted)?;
            unescape(&quoted[..end], &mut self.text);
            if name == b"le" {
                bound = parse(&self.text);
            }
            self.label.0.clear();
            self.label.bytes(field::LABEL_NAME, name);
            self.label.bytes(field::LABEL_VALUE, &self.text);
            self.metric.message(field::METRIC_LABEL, &self.label);
            rest = &quoted[end + 1..];
        }
    }
}

fn parse(number: &[u8]) -> Option<f64> {
    std::str::from_utf8(number).ok()?.parse().ok()
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

/// What was written with backslashes, as it was before.
pub fn unescape(text: &[u8], out: &mut Vec<u8>) {
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
        #[prost(message, optional, tag = "7")]
        histogram: Option<Histogram>,
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
    struct Histogram {
        #[prost(uint64, tag = "1")]
        count: u64,
        #[prost(double, tag = "2")]
        sum: f64,
        #[prost(message, repeated, tag = "3")]
        bucket: Vec<Bucket>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Bucket {
        #[prost(uint64, tag = "1")]
        cumulative_count: u64,
        #[prost(double, tag = "2")]
        upper_bound: f64,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Value {
        #[prost(double, tag = "1")]
        value: f64,
    }

    fn families(page: &str) -> Vec<MetricFamily> {
        let stream = to_delimited_protobuf(page.as_bytes());
        let mut rest = &stream[..];
        let mut found = Vec::new();
        while !rest.is_empty() {
            found.push(MetricFamily::decode_length_delimited(&mut rest).unwrap());
        }
        found
    }

    fn label(name: &str, value: &str) -> LabelPair {
        LabelPair {
            name: name.to_owned(),
            value: value.to_owned(),
        }
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
        assert_eq!(named, [("a_total", 0), ("none", 1), ("b", 1), ("c", 3)]);
        assert_eq!(found[0].help, "How often, \\ in\nall.");
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
        assert_eq!(found[1].metric, []);
        assert_eq!(found[2].metric[0].gauge, value(f64::INFINITY));
        assert!(found[3].metric[0].untyped.as_ref().unwrap().value.is_nan());
    }

    #[test]
    fn histograms() {
        let page = concat!(
            "# HELP h Of h.\n# TYPE h histogram\n",
            "h_bucket{x=\"z\",le=\"0.5\"} 1\nh_bucket{x=\"z\",le=\"+Inf\"} 2\n",
            "h_sum{x=\"z\"} 3.25\nh_count{x=\"z\"} 2\n",
            "h_bucket{x=\"y\",le=\"+Inf\"} 0\nh_sum{x=\"y\"} 0\nh_count{x=\"y\"} 0\n",
            "h_bucket_total 1\n",
        );
        let found = families(page);
        let named: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.kind)).collect();
        assert_eq!(named, [("h", 4), ("h_bucket_total", 3)]);
        let metric = |x: &str, count, sum, bucket| Metric {
            label: vec![label("x", x)],
            histogram: Some(Histogram { count, sum, bucket }),
            ..Metric::default()
        };
        let bucket = Bucket {
            cumulative_count: 1,
            upper_bound: 0.5,
        };
        let expected = [
            metric("z", 2, 3.25, vec![bucket]),
            metric("y", 0, 0.0, Vec::new()),
        ];
        assert_eq!(found[0].metric, expected);
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
        let hex: String = to_delimited_protobuf(page.as_bytes())
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
        fn nothing_panics(page in r#"([abc_# {}"=,\\0-9n\n]|# TYPE |# HELP |gauge|histogram|_bucket|_count|le=){0,60}"#) {
            let stream = to_delimited_protobuf(page.as_bytes());
            let mut rest = &stream[..];
            while !rest.is_empty() {
                prop_assert!(MetricFamily::decode_length_delimited(&mut rest).is_ok());
            }
        }
    }
}
