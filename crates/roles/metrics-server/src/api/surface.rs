//! From a request to an answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use plimsoll_apimachinery::answer;
use plimsoll_apimachinery::answer::{Answer, Format, Offer};
use plimsoll_apimachinery::kept::{Held, keeping};
use plimsoll_apimachinery::request::{Query, RequestInfo, is_percent_encoded, percent_decoded};
use plimsoll_apimachinery::status::StatusError;
use plimsoll_apimachinery::timeout::timeout;
use plimsoll_client::reflector;
use plimsoll_serving::auth::{Access, AuthFilter, Refusal, UserInfo};
use plimsoll_serving::health::{Class, Health, InFlight};
use plimsoll_serving::process_metrics;
use plimsoll_serving::{GoAway, Handler, RequestBody};

use super::access::access;
use super::browsers::Browsers;
use super::freshness::Freshness;
use super::list::{self, Listing, Next, accepts_gzip};
use super::objects::Common;
use super::openapi::OpenApi;
use super::refusals::{Wanted, form, no_metrics, no_watch, unknown, unsupported_media_type};
use super::route::{Debug, Route};
use super::row::{Kind, Row};
use super::verbosity::{self, Verbosity};
use super::version::{Announced, Version};
use super::{aggregated, counted, discovery, options, pages, past, route, statusz};
use crate::audit::{Audit, Audited, Refused};
use crate::history::History;
use crate::own::OwnMetrics;
use crate::view::{Found, View};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Marks answers to requests that did not get as far as what they asked for: they are not counted.
#[derive(Debug, Clone, Copy)]
struct Unreached;

/// Marks answers to requests that were given up: they are counted as that.
#[derive(Debug, Clone, Copy)]
struct TooLate;

/// Told to those who wrote two spaces where one belongs, and are nobody therefore.
const SPACED_TOKEN: &str = "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// Everything that an answer may need.
#[derive(Debug)]
pub struct Rooms {
    pub view: View,
    /// `None`: nothing is remembered.
    pub history: Option<History>,
    /// Opens when all nodes and pods are known; lists would lack some before that.
    pub known: reflector::CacheSync,
    pub gate: AuthFilter,
    pub in_flight: InFlight,
    /// The longest that a request may take.
    pub request_timeout: Duration,
    pub health: Health,
    pub own: OwnMetrics,
    pub announced: Announced,
    pub browsers: Browsers,
    /// Where clients reach the server: `:443`.
    pub address: String,
    /// `None`: how much is logged is somebody else's to say.
    pub verbosity: Option<Verbosity>,
    /// `None`: nothing is written down.
    pub audit: Option<Audit>,
}

/// Answers requests. Clones are the same.
#[derive(Debug, Clone)]
pub struct Surface(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    parts: Rooms,
    openapi: OpenApi,
    paths: String,
    started: jiff::Timestamp,
    process_started: Option<f64>,
}

/// What is known about a request before anybody looks at it.
struct Asked {
    head: Parts,
    query: Query,
    info: RequestInfo,
    route: Route,
    audit_id: HeaderValue,
}

impl Asked {
    fn new(head: Parts) -> Self {
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let path = percent_decoded(head.uri.path());
        let mut info = RequestInfo::new(&head.method, head.uri.path(), &query);
        // What cannot be read at all narrows nothing down.
        if options::are_readable(&query) {
            info.narrow(&query);
        }
        Self {
            route: Route::of(&path),
            audit_id: audit_id(&head.headers),
            head,
            query,
            info,
        }
    }

    fn offer(&self) -> Offer {
        Offer {
            lists: matches!(self.route, Route::List { .. }),
            protobuf: !matches!(
                self.route,
                Route::Version
                    | Route::Status
                    | Route::Past(route::Past::List(_) | route::Past::Get { .. })
            ),
            only_json: self.route == Route::Version,
            forms: matches!(self.route, Route::List { .. } | Route::Get { .. }),
        }
    }

    fn format(&self) -> Result<Format, StatusError> {
        Format::negotiate(&self.head.headers, self.query.get("pretty"), self.offer())
    }

    /// What no route is there for, though there is something at the path.
    fn misdirected(&self) -> Result<(), StatusError> {
        let headers = &self.head.headers;
        if self.route.is_read_only() {
            if self.head.method != Method::GET {
                return Err(StatusError::method_not_supported());
            }
            if !self.route.takes(headers) {
                return Err(unsupported_media_type());
            }
            // Where nothing is remembered there is nothing to offer.
            if !matches!(self.route, Route::Past(_)) {
                return self.offer().answers(headers);
            }
        }
        Ok(())
    }

    fn refused(&self, failure: &StatusError) -> Answer {
        let pretty = self.query.get("pretty");
        let format = Format::of_refusal(&self.head.headers, pretty, self.offer());
        let mut response = answer::refusal(failure, format.as_ref());
        response.extensions_mut().insert(Refused(failure.clone()));
        response
    }
}

impl Surface {
    pub fn new(parts: Rooms) -> Self {
        Self(Arc::new(Inner {
            openapi: OpenApi::new(parts.announced),
            paths: pages::paths(parts.announced, &parts.health),
            started: jiff::Timestamp::now(),
            process_started: process_metrics::started(),
            parts,
        }))
    }

    pub async fn handle(&self, head: Parts, sent: RequestBody) -> Answer {
        let began = Instant::now();
        let mut asked = Asked::new(head);
        let parts = &self.0.parts;
        let class = Class::of(&asked.head);
        let mut under_way = parts.own.requests.begin(class == Class::Mutating);
        let origin = asked.head.headers.get(header::ORIGIN).cloned();
        let misspelt = spaced_token(&asked.head.headers);
        let mut response = match parts.browsers.preflight(&asked.head) {
            Some(response) => response,
            None => self.in_time(&mut asked, sent, class, began).await,
        };
        if misspelt {
            answer::add_warnings(&mut response, &[SPACED_TOKEN.to_owned()]);
        }
        parts.browsers.mark(response.headers_mut(), origin.as_ref());
        if parts.browsers.sends_away() {
            response.extensions_mut().insert(GoAway);
        }
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID, asked.audit_id);
        answer::not_to_be_kept(headers);
        let reached = response.extensions().get::<Unreached>().is_none();
        let labels = counted::labels(&asked.route, &asked.info, &asked.query, &asked.head);
        if let Some(labels) = labels.filter(|_| reached) {
            let code = response.status().as_u16();
            match response.extensions().get::<TooLate>() {
                Some(TooLate) => parts.own.requests.too_late(labels, code),
                None => parts.own.requests.answered(labels, code, began.elapsed()),
            }
            if code == StatusCode::TOO_MANY_REQUESTS.as_u16() {
                parts.own.requests.terminated(labels, code);
            }
            under_way.is(labels);
        }
        // It is under way until its last byte is out.
        response.map(|body| keeping(body, under_way))
    }

    /// Nobody waits longer than they wished to, nor than anybody may.
    async fn in_time(
        &self,
        asked: &mut Asked,
        sent: RequestBody,
        class: Class,
        began: Instant,
    ) -> Answer {
        if asked.info.verb == "watch" {
            return self.admitted(asked, sent, class).await;
        }
        let wished = match timeout(&asked.query) {
            Ok(wished) => wished,
            Err(refused) => return asked.refused(&refused),
        };
        let longest = self.0.parts.request_timeout;
        let limit = wished.map_or(longest, |wished| wished.min(longest));
        // Even what could be answered at once is not, when the time for it has passed.
        let Some(rest) = limit.checked_sub(began.elapsed()) else {
            return too_late();
        };
        match tokio::time::timeout(rest, self.admitted(asked, sent, class)).await {
            Ok(response) => response,
            Err(_) => too_late(),
        }
    }

    async fn admitted(&self, asked: &mut Asked, sent: RequestBody, class: Class) -> Answer {
        let parts = &self.0.parts;
        let access = access(&asked.head.method, &asked.info, &asked.query);
        let began = Instant::now();
        let identified = parts.gate.identify(&mut asked.head, &access).await;
        let outcome = identified.as_ref().map(|user| user.name.as_str());
        parts.own.access.identified(outcome, began.elapsed());
        let began = Instant::now();
        let mut audited = parts.audit.as_ref().and_then(|audit| {
            let id = asked.audit_id.to_str().unwrap_or_default();
            let user = identified.as_ref().ok();
            audit.begin(&asked.head, &asked.info, user, id)
        });
        parts.gate.filters.held_up("audit", began);
        let response = match identified {
            Ok(user) => {
                self.known(asked, sent, class, &user, access, &mut audited)
                    .await
            }
            Err(refusal) => {
                if matches!(refusal, Refusal::Unauthorized(_))
                    && let Some(audited) = audited.take()
                {
                    audited.unknown(&asked.head);
                }
                turned_away(asked, &refusal)
            }
        };
        let Some(mut audited) = audited else {
            return response;
        };
        let refused = response.extensions().get::<Refused>();
        let refused = refused.map(|Refused(failure)| failure);
        audited.answered(response.status().as_u16(), refused);
        response.map(|body| keeping(body, audited))
    }

    /// It is known who asks.
    async fn known(
        &self,
        asked: &Asked,
        sent: RequestBody,
        class: Class,
        user: &UserInfo,
        access: Access,
        audited: &mut Option<Audited>,
    ) -> Answer {
        let parts = &self.0.parts;
        let place = match parts.in_flight.enter(class, user) {
            Ok(place) => place,
            Err(too_many) => return too_many.into_response().map(from_full),
        };
        let began = Instant::now();
        let permitted = parts.gate.permit(&asked.head, user, access).await;
        let outcome = permitted.as_ref().copied();
        parts.own.access.judged(outcome, began.elapsed());
        if let Some(audited) = audited {
            match &permitted {
                Ok(()) => audited.judged("allow", ""),
                Err(Refusal::Forbidden { reason, .. }) => audited.judged("forbid", reason),
                Err(_) => audited.judged("forbid", "internal error"),
            }
        }
        if let Err(refusal) = permitted {
            return turned_away(asked, &refusal);
        }
        let mut response = match asked.misdirected() {
            Ok(()) => match self.routed(asked, sent).await {
                Ok(response) => response,
                Err(refused) => asked.refused(&refused),
            },
            Err(refused) => {
                let mut response = asked.refused(&refused);
                response.extensions_mut().insert(Unreached);
                response
            }
        };
        mark_strangers(&mut response, user);
        response.map(|body| keeping(body, Held(place)))
    }

    async fn routed(&self, asked: &Asked, sent: RequestBody) -> Result<Answer, StatusError> {
        let inner = &*self.0;
        let parts = &inner.parts;
        let (method, headers) = (&asked.head.method, &asked.head.headers);
        Ok(match &asked.route {
            Route::NoResource => return Err(StatusError::no_such_resource()),
            Route::Index => pages::index(StatusCode::OK, &inner.paths),
            Route::Nothing => pages::index(StatusCode::NOT_FOUND, &inner.paths),
            Route::Groups => {
                if let Some(encoding) = aggregated::wants_aggregated(headers) {
                    let pretty = answer::wants_pretty(headers, asked.query.get("pretty"));
                    return Ok(aggregated::aggregated(
                        parts.announced,
                        encoding,
                        pretty,
                        headers,
                    ));
                }
                let document = discovery::groups(parts.announced, &parts.address);
                discovery::answer_with(&document, &asked.format()?)
            }
            Route::Group => {
                discovery::answer_with(&discovery::group(parts.announced), &asked.format()?)
            }
            Route::Resources(version) => {
                discovery::answer_with(&discovery::resources(*version), &asked.format()?)
            }
            Route::List {
                version,
                kind,
                namespace,
            } => return self.list(asked, *version, *kind, namespace).await,
            Route::Get {
                version,
                kind,
                namespace,
                name,
            } => return self.get(asked, *version, *kind, namespace, name),
            Route::Past(past) => return self.past(asked, past),
            Route::Version => {
                asked.format()?;
                pages::version()
            }
            Route::OpenApi2 => pages::openapi_2(&inner.openapi, method, headers),
            Route::OpenApi3 => pages::openapi_3(&inner.openapi, method, headers),
            Route::OpenApi3Of(part) => {
                pages::openapi_3_of(&inner.openapi, part, &asked.query, method, headers)
            }
            Route::Health => {
                let path = percent_decoded(asked.head.uri.path());
                let answer = parts.health.answer(&path, asked.head.uri.query());
                match answer {
                    Some(answer) => answer.map(from_full),
                    None => pages::index(StatusCode::NOT_FOUND, &inner.paths),
                }
            }
            Route::Metrics => pages::metrics(parts.own.render(), inner.process_started, headers),
            Route::Status => {
                let pretty = answer::wants_pretty(headers, asked.query.get("pretty"));
                statusz::answer(inner.started, headers, pretty)?
            }
            Route::Debug(Debug::Verbosity) if asked.head.method == Method::PUT => {
                verbosity::set(parts.verbosity.as_ref(), sent).await
            }
            Route::Debug(debug) => pages::debug(debug),
        })
    }

    async fn list(
        &self,
        asked: &Asked,
        version: Version,
        kind: Kind,
        namespace: &str,
    ) -> Result<Answer, StatusError> {
        let format = asked.format()?;
        let watched = asked.info.verb == "watch";
        let selector = options::selector(&asked.query, watched)?;
        self.complete()?;
        if watched {
            return Err(no_watch(kind));
        }
        let form = form(&format, &asked.query, Wanted::List(kind))?;
        let listing = Listing {
            view: self.0.parts.view.clone(),
            kind,
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            selector,
            freshness: self.freshness().clone(),
            next: Next::Beginning,
            until: None,
        };
        let common = common(version, kind);
        let gzip = accepts_gzip(&asked.head.headers);
        Ok(list::answer(listing, &format, form, common, gzip).await)
    }

    fn past(&self, asked: &Asked, past: &route::Past) -> Result<Answer, StatusError> {
        let Some(history) = &self.0.parts.history else {
            // As any other path that is not there.
            return Ok(pages::index(StatusCode::NOT_FOUND, &self.0.paths));
        };
        let format = asked.format()?;
        let gzip = accepts_gzip(&asked.head.headers);
        Ok(match past {
            route::Past::Group => discovery::answer_with(&discovery::past_group(), &format),
            route::Past::Resources => discovery::answer_with(&discovery::past_resources(), &format),
            route::Past::List(namespace) => {
                past::list(history, namespace.as_deref(), &asked.query, &format, gzip)?
            }
            route::Past::Get { namespace, name } => past::get(history, namespace, name, &format)?,
            route::Past::Nothing => return Err(StatusError::no_such_resource()),
        })
    }

    /// Whoever asks too early must not take what is there for all there is.
    fn complete(&self) -> Result<(), StatusError> {
        let known = &self.0.parts.known;
        if known.is_open() {
            return Ok(());
        }
        let mut failure = StatusError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            format!(
                "not all is known yet: waiting for {}",
                known.missing().join(", ")
            ),
        );
        failure.retry_after = Some(1);
        Err(failure)
    }

    fn freshness(&self) -> &Freshness {
        &self.0.parts.own.freshness
    }

    fn get(
        &self,
        asked: &Asked,
        version: Version,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Answer, StatusError> {
        let format = asked.format()?;
        options::of_one(&asked.query)?;
        self.complete()?;
        let common = common(version, kind);
        let mut ages = self.freshness().ages();
        let form = form(&format, &asked.query, Wanted::One(kind));
        let mut show = |row: Row<'_>| {
            if let Some((at, _)) = row.taken() {
                ages.observe(at);
            }
            let form = form.clone()?;
            Ok::<_, StatusError>(list::single(&row, &format, form, common))
        };
        let view = &self.0.parts.view;
        let found = match kind {
            Kind::Node => view.node(name, |row| show(Row::Node(row))),
            Kind::Pod => view.pod(namespace, name, |row| show(Row::Pod(row))),
        };
        self.freshness().add(ages);
        let gzip = accepts_gzip(&asked.head.headers);
        match found {
            Found::Found(bytes) => Ok(list::whole(bytes?, &format, gzip)),
            Found::Unknown => Err(unknown(kind, name)),
            Found::NoMetrics => Err(no_metrics(kind, namespace, name)),
        }
    }
}

fn common(version: Version, kind: Kind) -> Common {
    let now = jiff::Timestamp::now().as_second();
    Common::new(kind, version.api_version(), now)
}

/// Those whom nobody knows, and those who may not.
fn turned_away(asked: &Asked, refusal: &Refusal) -> Answer {
    let mut response = match refusal.failure() {
        Some(failure) => asked.refused(&failure),
        None => answer::text(refusal.status(), refusal.message() + "\n"),
    };
    if !matches!(refusal, Refusal::Unauthorized(_)) {
        let nosniff = HeaderValue::from_static("nosniff");
        let headers = response.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    if refusal.is_to_a_stranger() {
        response.extensions_mut().insert(GoAway);
    }
    response.extensions_mut().insert(Unreached);
    response
}

/// Not in the format that was asked for: what would write that is taken to be stuck.
fn too_late() -> Answer {
    const TEXT: &str = concat!(
        r#"{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","#,
        r#""reason":"Timeout","details":{},"code":504}"#,
        "\n"
    );
    let kind = "text/plain; charset=utf-8";
    let mut response = answer::answer(StatusCode::GATEWAY_TIMEOUT, kind, answer::full(TEXT));
    response.extensions_mut().insert(TooLate);
    response
}

/// Strangers must not keep a connection on which much can be asked at little cost.
fn mark_strangers(response: &mut Answer, user: &UserInfo) {
    if user.is_anonymous() {
        response.extensions_mut().insert(GoAway);
    }
}

fn spaced_token(headers: &HeaderMap) -> bool {
    let said = headers.get(header::AUTHORIZATION);
    let said = said.and_then(|value| value.to_str().ok());
    let words = said.and_then(|said| said.trim().split_once(' '));
    words.is_some_and(|(scheme, token)| {
        scheme.eq_ignore_ascii_case("bearer") && token.starts_with(' ')
    })
}

/// What Go's own server answers before anybody looks at a request: to targets that are none, and to those who ask about
/// the server as a whole.
fn unrouted(head: &Parts) -> Option<Answer> {
    let path = head.uri.path();
    if head.method == Method::OPTIONS && path == "*" {
        return Some(http::Response::new(answer::full("")));
    }
    let is_target = path.starts_with('/') && is_percent_encoded(path);
    if is_target || path == "*" || head.method == Method::CONNECT {
        return None;
    }
    let mut response = http::Response::new(answer::full("400 Bad Request"));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Some(response)
}

fn audit_id(headers: &HeaderMap) -> HeaderValue {
    if let Some(given) = headers.get(&AUDIT_ID).filter(|given| !given.is_empty()) {
        return given.clone();
    }
    let id = uuid::Uuid::new_v4().to_string();
    HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static(""))
}

fn from_full(body: http_body_util::Full<bytes::Bytes>) -> answer::Body {
    body.map_err(|never| match never {}).boxed_unsync()
}

impl Handler for Surface {
    type Body = answer::Body;

    async fn respond(self, head: Parts, sent: RequestBody) -> Answer {
        match unrouted(&head) {
            Some(response) => response,
            None => self.handle(head, sent).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_known_by_what_they_call_themselves() {
        let mut headers = HeaderMap::new();
        assert_eq!(audit_id(&headers).len(), 36);
        headers.insert(AUDIT_ID, HeaderValue::from_static("abc"));
        assert_eq!(audit_id(&headers), "abc");
        // No name is none.
        headers.insert(AUDIT_ID, HeaderValue::from_static(""));
        assert_eq!(audit_id(&headers).len(), 36);
    }
}
