//! Writes a page of metrics as text, family by family.

use std::fmt::Write;

use super::Histogram;
use plimsoll_golang::strconv::format_float;

#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

/// Names and values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition {
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.line(name, labels, None, value);
    }

    pub fn histogram(&mut self, name: &str, labels: Labels<'_>, histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.cumulative() {
            self.line(&bucket, labels, Some(&format_float(bound)), count as f64);
        }
        let count = histogram.count() as f64;
        self.line(&bucket, labels, Some("+Inf"), count);
        self.line(&format!("{name}_sum"), labels, None, histogram.sum());
        self.line(&format!("{name}_count"), labels, None, count);
    }

    fn line(&mut self, name: &str, labels: Labels<'_>, bound: Option<&str>, value: f64) {
        self.text.push_str(name);
        let labels = labels
            .iter()
            .copied()
            .chain(bound.map(|bound| ("le", bound)));
        let mut separator = '{';
        for (key, value) in labels {
            self.text.push(separator);
            separator = ',';
            let _ = write!(self.text, "{key}=\"");
            escape(&mut self.text, value);
            self.text.push('"');
        }
        if separator == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {}", format_float(value));
    }

    /// Puts another's text at the end of this.
    pub fn append(&mut self, other: Self) {
        self.text.push_str(&other.text);
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// With its families in the order of their names.
    #[must_use]
    pub fn sorted(self) -> Self {
        let mut families: Vec<&str> = self
            .text
            .split_inclusive("# HELP ")
            .map(|family| family.strip_suffix("# HELP ").unwrap_or(family))
            .filter(|family| !family.is_empty())
            .collect();
        families.sort_by_key(|family| family.split(' ').next());
        let mut text = String::with_capacity(self.text.len());
        for family in families {
            text.push_str("# HELP ");
            text.push_str(family);
        }
        Self { text }
    }

    pub fn finish(self) -> String {
        self.text
    }
}

fn escape(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_in_order() {
        let mut page = Exposition::default();
        for name in ["b", "a_c", "a"] {
            page.family(name, "gauge", "x");
            page.sample(name, &[], 1.0);
        }
        let text = page.sorted().finish();
        assert_eq!(
            text,
            "# HELP a x\n# TYPE a gauge\na 1\n# HELP a_c x\n# TYPE a_c gauge\na_c 1\n# HELP b x\n# TYPE b gauge\nb 1\n"
        );
        assert_eq!(Exposition::default().sorted().finish(), "");
    }

    #[test]
    fn a_page() {
        let mut page = Exposition::default();
        page.family("a", "gauge", "[ALPHA] what it is");
        page.sample("a", &[("x", "1\"2")], 1_794_801_119.5);
        page.sample("a", &[], 0.0);
        let mut histogram = Histogram::new([0.005, 1e6].into());
        histogram.observe(0.001);
        histogram.observe(2e6);
        page.histogram("h", &[("n", "m")], &histogram);
        assert_eq!(
            page.finish(),
            "# HELP a [ALPHA] what it is\n# TYPE a gauge\na{x=\"1\\\"2\"} 1.7948011195e+09\na 0\n\
             h_bucket{n=\"m\",le=\"0.005\"} 1\nh_bucket{n=\"m\",le=\"1e+06\"} 1\nh_bucket{n=\"m\",le=\"+Inf\"} 2\n\
             h_sum{n=\"m\"} 2.000000001e+06\nh_count{n=\"m\"} 2\n"
        );
    }
}
