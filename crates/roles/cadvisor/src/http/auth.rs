//! Authentication: a bearer token for everything, a password for the HTML pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use http::HeaderValue;
use parking_lot::RwLock;

use super::htpasswd::{Hash, decode_base64, same};
use super::route::Route;

/// A password file in Apache's format.
#[derive(Debug, Clone)]
pub struct BasicConfig {
    pub file: PathBuf,
    pub realm: String,
    /// The API and the metrics too, which the original leaves open.
    pub everything: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} holds no token", .0.display())]
    NoToken(PathBuf),
    #[error("{}: line {line} is not name:password", path.display())]
    Line { path: PathBuf, line: usize },
    #[error("{}: the password of {user} is hashed in a way not supported here; use htpasswd -m or -s", path.display())]
    Hash { path: PathBuf, user: String },
}

#[derive(Debug, Default)]
pub struct Auth {
    token: Option<(PathBuf, RwLock<Vec<u8>>)>,
    basic: Option<Basic>,
}

#[derive(Debug)]
struct Basic {
    realm: String,
    everything: bool,
    users: BTreeMap<String, Hash>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Welcome,
    Refused { challenge: String },
}

impl Auth {
    pub fn load(token: Option<&Path>, basic: Option<&BasicConfig>) -> Result<Self, AuthError> {
        let token = match token {
            Some(path) => Some((path.to_owned(), RwLock::new(read_token(path)?))),
            None => None,
        };
        let basic = match basic {
            Some(config) => Some(Basic {
                realm: config.realm.clone(),
                everything: config.everything,
                users: read_users(&config.file)?,
            }),
            None => None,
        };
        Ok(Self { token, basic })
    }

    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub fn token_file(&self) -> Option<&Path> {
        self.token.as_ref().map(|(path, _)| path.as_path())
    }

    /// Reads the token again; if that fails, the old one stays valid.
    pub fn reload_token(&self) -> Result<(), AuthError> {
        if let Some((path, token)) = &self.token {
            *token.write() = read_token(path)?;
        }
        Ok(())
    }

    pub fn judge(&self, authorization: Option<&HeaderValue>, to: &Route) -> Verdict {
        // Probes carry no credentials.
        if to.is_probe() {
            return Verdict::Welcome;
        }
        let given = authorization.map_or(&b""[..], HeaderValue::as_bytes);
        if let Some((_, token)) = &self.token {
            return match scheme(given, b"Bearer ") {
                Some(given) if same(given, &token.read()) => Verdict::Welcome,
                _ => Verdict::Refused {
                    challenge: "Bearer".to_owned(),
                },
            };
        }
        match &self.basic {
            Some(basic) if basic.everything || to.is_page() => basic.judge(given),
            _ => Verdict::Welcome,
        }
    }
}

impl Basic {
    fn judge(&self, given: &[u8]) -> Verdict {
        let known = scheme(given, b"Basic ")
            .and_then(decode_base64)
            .and_then(|pair| String::from_utf8(pair).ok())
            .is_some_and(|pair| self.knows(&pair));
        match known {
            true => Verdict::Welcome,
            false => Verdict::Refused {
                challenge: format!("Basic realm=\"{}\"", self.realm.replace('"', "'")),
            },
        }
    }

    fn knows(&self, pair: &str) -> bool {
        let Some((user, password)) = pair.split_once(':') else {
            return false;
        };
        self.users.get(user).is_some_and(|hash| hash.fits(password))
    }
}

/// What follows the scheme's name, whatever its case.
fn scheme<'a>(value: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (given, rest) = value.split_at_checked(name.len())?;
    given.eq_ignore_ascii_case(name).then_some(rest)
}

fn read(path: &Path) -> Result<String, AuthError> {
    fs::read_to_string(path).map_err(|source| AuthError::Read {
        path: path.to_owned(),
        source,
    })
}

fn read_token(path: &Path) -> Result<Vec<u8>, AuthError> {
    let text = read(path)?;
    match text.trim() {
        "" => Err(AuthError::NoToken(path.to_owned())),
        token => Ok(token.as_bytes().to_vec()),
    }
}

fn read_users(path: &Path) -> Result<BTreeMap<String, Hash>, AuthError> {
    let text = read(path)?;
    let mut users = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((user, hash)) = line.split_once(':') else {
            return Err(AuthError::Line {
                path: path.to_owned(),
                line: index + 1,
            });
        };
        let Some(hash) = Hash::parse(hash) else {
            return Err(AuthError::Hash {
                path: path.to_owned(),
                user: user.to_owned(),
            });
        };
        users.insert(user.to_owned(), hash);
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn value(text: &str) -> HeaderValue {
        HeaderValue::from_str(text).unwrap()
    }

    #[test]
    fn a_token_guards_all_but_probes() {
        let token = file("s3cret\n");
        let auth = Auth::load(Some(token.path()), None).unwrap();
        let metrics = |given: &str| auth.judge(Some(&value(given)), &Route::Metrics);
        assert_eq!(metrics("Bearer s3cret"), Verdict::Welcome);
        assert_eq!(metrics("bearer s3cret"), Verdict::Welcome);
        for wrong in [
            "Bearer s3creT",
            "Bearer s3cret2",
            "Bearer ",
            "s3cret",
            "Basic s3cret",
        ] {
            assert_ne!(metrics(wrong), Verdict::Welcome, "{wrong}");
        }
        assert_ne!(auth.judge(None, &Route::Metrics), Verdict::Welcome);
        assert_eq!(auth.judge(None, &Route::Healthz), Verdict::Welcome);
        assert_eq!(auth.judge(None, &Route::Readyz), Verdict::Welcome);
    }

    #[test]
    fn a_changed_token_counts_and_a_lost_one_does_not() {
        let token = file("old");
        let auth = Auth::load(Some(token.path()), None).unwrap();
        fs::write(token.path(), "new").unwrap();
        auth.reload_token().unwrap();
        let judged = |given: &str| auth.judge(Some(&value(given)), &Route::Metrics);
        assert_eq!(judged("Bearer new"), Verdict::Welcome);
        assert_ne!(judged("Bearer old"), Verdict::Welcome);
        fs::write(token.path(), " \n").unwrap();
        auth.reload_token().unwrap_err();
        assert_eq!(judged("Bearer new"), Verdict::Welcome);
    }

    #[test]
    fn passwords_guard_pages() {
        // admin:password, as `htpasswd -s` writes it.
        let users = file("# people\nadmin:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n");
        let config = |everything| BasicConfig {
            file: users.path().to_owned(),
            realm: "rig".to_owned(),
            everything,
        };
        let auth = Auth::load(None, Some(&config(false))).unwrap();
        let page = Route::ContainersPage("/".to_owned());
        let right = value("Basic YWRtaW46cGFzc3dvcmQ=");
        assert_eq!(auth.judge(Some(&right), &page), Verdict::Welcome);
        let refused = Verdict::Refused {
            challenge: "Basic realm=\"rig\"".to_owned(),
        };
        for wrong in [
            "Basic YWRtaW46cGFzc3dvcmU=",
            "Basic !!",
            "Basic YWRtaW4=",
            "",
        ] {
            assert_eq!(auth.judge(Some(&value(wrong)), &page), refused, "{wrong}");
        }
        assert_eq!(auth.judge(None, &Route::Metrics), Verdict::Welcome);
        let all = Auth::load(None, Some(&config(true))).unwrap();
        assert_eq!(all.judge(None, &Route::Metrics), refused);
    }

    #[test]
    fn files_that_will_not_do() {
        let error = |text: &str| {
            let config = BasicConfig {
                file: file(text).into_temp_path().keep().unwrap(),
                realm: String::new(),
                everything: false,
            };
            let error = Auth::load(None, Some(&config)).unwrap_err().to_string();
            fs::remove_file(&config.file).unwrap();
            error
        };
        assert!(error("admin\n").ends_with("line 1 is not name:password"));
        assert!(error("a:$2y$05$abc\n").contains("the password of a is hashed"));
        let missing = Auth::load(Some(Path::new("/nonexistent/token")), None).unwrap_err();
        assert_eq!(missing.to_string(), "read /nonexistent/token");
    }
}
