//! Chooses the exposition format by the `Accept` header, with the rules of Prometheus' Go library.

use http::HeaderMap;
use http::header::ACCEPT;

/// How names beyond ASCII would be written. Ours are all within, so it only has to be said.
const ESCAPINGS: [&str; 4] = ["underscores", "allow-utf-8", "dots", "values"];
const MESSAGE: &str = "io.prometheus.client.MetricFamily";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    /// Delimited protobuf messages.
    Delimited,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub form: Form,
    escaping: &'static str,
}

impl Format {
    /// The preferred format of those that exist. Never refuses: the fallback is text.
    pub fn wanted(headers: &HeaderMap) -> Self {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
        let mut clauses: Vec<Clause<'_>> =
            accept.unwrap_or("").split(',').map(Clause::parse).collect();
        clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
        let mut escaping = ESCAPINGS[0];
        for clause in clauses {
            let asked = ESCAPINGS
                .iter()
                .find(|known| clause.get("escaping") == **known);
            escaping = asked.copied().unwrap_or(escaping);
            if let Some(form) = clause.form() {
                return Self { form, escaping };
            }
        }
        Self {
            form: Form::Text,
            escaping,
        }
    }

    pub fn content_type(self) -> String {
        let escaping = self.escaping;
        match self.form {
            Form::Text => format!("text/plain; version=0.0.4; charset=utf-8; escaping={escaping}"),
            Form::Delimited => format!(
                "application/vnd.google.protobuf; proto={MESSAGE}; encoding=delimited; escaping={escaping}"
            ),
        }
    }
}

/// One entry of the Accept header.
#[derive(Debug)]
struct Clause<'a> {
    kind: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let kind = parts.next().unwrap_or("");
        let parameters: Vec<_> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim().trim_matches('"')))
            .collect();
        let quality = parameters.iter().find(|(key, _)| *key == "q");
        let quality = quality.and_then(|(_, value)| value.parse().ok());
        Self {
            kind,
            parameters,
            quality: quality.unwrap_or(1.0),
        }
    }

    fn get(&self, key: &str) -> &'a str {
        let found = self.parameters.iter().find(|(known, _)| *known == key);
        found.map_or("", |(_, value)| value)
    }

    fn form(&self) -> Option<Form> {
        let is_message = self.get("proto") == MESSAGE && self.get("encoding") == "delimited";
        match self.kind {
            "application/vnd.google.protobuf" if is_message => Some(Form::Delimited),
            "text/plain" if matches!(self.get("version"), "" | "0.0.4") => Some(Form::Text),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=";
    const MESSAGES: &str = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=";

    /// Every answer was read off a real cAdvisor 0.60.6.
    #[test]
    fn as_the_original_answers() {
        let message = format!("application/vnd.google.protobuf;proto={MESSAGE};encoding=delimited");
        for (accept, form, escaping) in [
            (String::new(), TEXT, "underscores"),
            (message.clone(), MESSAGES, "underscores"),
            ("application/vnd.google.protobuf".to_owned(), TEXT, "underscores"),
            (
                "application/vnd.google.protobuf;proto=x;encoding=delimited".to_owned(),
                TEXT,
                "underscores",
            ),
            // Prometheus with native histograms, and without.
            (
                format!(
                    "{message};escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
                ),
                MESSAGES,
                "allow-utf-8",
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2".to_owned(),
                TEXT,
                "allow-utf-8",
            ),
            (format!("text/plain;q=0.5,{message};q=0.4"), TEXT, "underscores"),
            (format!("text/plain;q=0.4, {message}; q=0.5"), MESSAGES, "underscores"),
            ("text/plain;version=1.0.0;escaping=values".to_owned(), TEXT, "values"),
            ("text/plain;version=0.0.4;escaping=dots".to_owned(), TEXT, "dots"),
            ("text/plain;escaping=bogus".to_owned(), TEXT, "underscores"),
            ("*/*;escaping=allow-utf-8".to_owned(), TEXT, "allow-utf-8"),
            ("text/html".to_owned(), TEXT, "underscores"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_str(&accept).unwrap());
            let answer = Format::wanted(&headers).content_type();
            assert_eq!(answer, format!("{form}{escaping}"), "{accept}");
        }
    }
}
