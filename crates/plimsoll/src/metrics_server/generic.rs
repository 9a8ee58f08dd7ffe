//! How requests are taken, whatever they ask for.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use http::HeaderValue;
use plimsoll_golang::GoDuration;
use plimsoll_metrics_server::api::Browsers;
use regex::Regex;

use crate::go;

/// Longer than any request.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug, Args)]
#[command(next_help_heading = "Requests")]
pub struct GenericArgs {
    /// Reading requests at once; 0 is any number
    #[arg(
        long,
        value_name = "N",
        allow_hyphen_values = true,
        default_value_t = 400
    )]
    pub max_requests_inflight: i64,
    /// Other requests at once; 0 is any number
    #[arg(
        long,
        value_name = "N",
        allow_hyphen_values = true,
        default_value_t = 200
    )]
    pub max_mutating_requests_inflight: i64,
    /// How long to go on serving after a signal to stop, while it says that it is not ready
    #[arg(long, value_name = "DURATION", value_parser = go::signed_duration, allow_hyphen_values = true, default_value = "0s")]
    pub shutdown_delay_duration: GoDuration,
    /// Share of requests, at most 0.02, after which HTTP/2 clients are asked to connect anew
    #[arg(
        long,
        value_name = "SHARE",
        allow_hyphen_values = true,
        default_value_t = 0.0
    )]
    goaway_chance: f64,
    /// Patterns of the web pages that may ask
    #[arg(long, value_name = "REGEXES", value_delimiter = ',')]
    cors_allowed_origins: Vec<String>,
    /// Tell browsers to stay with HTTPS: max-age=SECONDS, includeSubDomains, preload
    #[arg(long, value_name = "DIRECTIVES", value_delimiter = ',')]
    strict_transport_security_directives: Vec<String>,
    /// Longest time for a request; clients may ask for less
    #[arg(long, value_name = "DURATION", value_parser = go::signed_duration, allow_hyphen_values = true, default_value = "1m0s")]
    request_timeout: GoDuration,
    #[arg(
        long,
        value_name = "SECONDS",
        allow_hyphen_values = true,
        default_value_t = 1800,
        hide = true
    )]
    min_request_timeout: i64,
    #[arg(long, value_name = "DURATION", value_parser = go::signed_duration, allow_hyphen_values = true, default_value = "0s", hide = true)]
    livez_grace_period: GoDuration,
    #[arg(long, value_name = "DURATION", value_parser = go::signed_duration, allow_hyphen_values = true, default_value = "1m0s", hide = true)]
    storage_initialization_timeout: GoDuration,
    #[arg(long, value_name = "DURATION", value_parser = go::signed_duration, allow_hyphen_values = true, default_value = "0s", hide = true)]
    shutdown_watch_termination_grace_period: GoDuration,
}

/// A page's origin is `https://host` or `https://host:port`: a pattern that is open at either end of the host would let
/// in hosts of others. What the original looks for to tell.
const BEGINS_HOST: [&str; 2] = ["^", "//"];
const ENDS_HOST: [&str; 2] = ["$", ":"];

impl GenericArgs {
    /// In the order of the original, of which only the first is told.
    pub fn validate(&self) -> Result<()> {
        ensure!(
            self.livez_grace_period.nanos() >= 0,
            "--livez-grace-period can not be a negative value"
        );
        not_negative("max-requests-inflight", self.max_requests_inflight)?;
        not_negative(
            "max-mutating-requests-inflight",
            self.max_mutating_requests_inflight,
        )?;
        not_negative("request-timeout", self.request_timeout.nanos())?;
        ensure!(
            (0.0..=0.02).contains(&self.goaway_chance),
            "--goaway-chance can not be less than 0 or greater than 0.02"
        );
        not_negative("min-request-timeout", self.min_request_timeout)?;
        not_negative(
            "storage-initialization-timeout",
            self.storage_initialization_timeout.nanos(),
        )?;
        not_negative(
            "shutdown-delay-duration",
            self.shutdown_delay_duration.nanos(),
        )?;
        ensure!(
            self.shutdown_watch_termination_grace_period.nanos() >= 0,
            "shutdown-watch-termination-grace-period, if provided, can not be a negative value"
        );
        let directives = given(&self.strict_transport_security_directives).iter();
        together(directives.filter_map(|one| wrong_with_directive(one)))?;
        let origins = given(&self.cors_allowed_origins).iter();
        together(origins.filter_map(|one| wrong_with_origin(one)))
    }

    /// Zero would leave no time for anything: it means that there is no limit.
    pub fn request_timeout(&self) -> Duration {
        let given = self.request_timeout.positive();
        given.filter(|span| !span.is_zero()).unwrap_or(NEVER)
    }

    pub fn browsers(&self) -> Result<Browsers> {
        let origins = given(&self.cors_allowed_origins).iter();
        let strict = given(&self.strict_transport_security_directives).join("; ");
        Ok(Browsers {
            origins: origins
                .map(|pattern| Regex::new(pattern))
                .collect::<Result<_, _>>()
                .context("--cors-allowed-origins")?,
            strict_transport: match strict.as_str() {
                "" => None,
                strict => Some(HeaderValue::from_str(strict)?),
            },
            goaway_chance: self.goaway_chance,
        })
    }
}

/// A flag with nothing after its `=` gives no values, not an empty one.
fn given(values: &[String]) -> &[String] {
    match values {
        [nothing] if nothing.is_empty() => &[],
        values => values,
    }
}

fn not_negative(flag: &str, number: i64) -> Result<()> {
    ensure!(number >= 0, "--{flag} can not be negative value");
    Ok(())
}

/// All that is wrong with the parts of one flag, each thing once, as Kubernetes says several things at a time.
fn together(errors: impl Iterator<Item = String>) -> Result<()> {
    let mut said: Vec<String> = Vec::new();
    for error in errors {
        if !said.contains(&error) {
            said.push(error);
        }
    }
    match said.as_slice() {
        [] => Ok(()),
        [one] => bail!("{one}"),
        several => bail!("[{}]", several.join(", ")),
    }
}

fn wrong_with_directive(directive: &str) -> Option<String> {
    if directive.trim().is_empty() {
        return Some("empty value in strict-transport-security-directives".to_owned());
    }
    let age = directive.strip_prefix("max-age=");
    let known = matches!(directive, "includeSubDomains" | "preload")
        || age.is_some_and(|age| !age.contains('='));
    (!known).then(|| {
        "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, \
         includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information"
            .to_owned()
    })
}

fn wrong_with_origin(pattern: &str) -> Option<String> {
    const HELP: &str = "write //example\\.com(:|$)";
    if pattern.is_empty() {
        return Some(format!(
            "empty value in --cors-allowed-origins, help: {HELP}"
        ));
    }
    let has = |marks: [&str; 2]| marks.iter().any(|mark| pattern.contains(mark));
    let why = match Regex::new(pattern) {
        Err(error) => error.to_string(),
        Ok(_) if has(BEGINS_HOST) && has(ENDS_HOST) => return None,
        Ok(_) => {
            "regular expression does not pin to start/end of host in the origin header".to_owned()
        }
    };
    Some(format!(
        "--cors-allowed-origins has an invalid regular expression: {why}, help: {HELP} instead of {pattern:?}"
    ))
}
