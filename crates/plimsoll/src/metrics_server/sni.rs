//! `--tls-sni-cert-key CERT,KEY:NAMES`.

use plimsoll_serving::{KeyPairFiles, NamedFiles};

pub fn parse(text: &str) -> Result<NamedFiles, String> {
    // Names come after the last colon; paths may have colons, too.
    let (files, names) = match text.rsplit_once(':') {
        Some((files, names)) if files.contains(',') => (files, names),
        _ => (text, ""),
    };
    let Some((cert, key)) = files.split_once(',') else {
        return Err("expected comma separated certificate and key file paths".to_owned());
    };
    if cert.is_empty() || key.is_empty() || key.contains(',') {
        return Err("expected comma separated certificate and key file paths".to_owned());
    }
    let names = names.split(',').map(str::trim);
    Ok(NamedFiles {
        files: KeyPairFiles {
            cert: cert.into(),
            key: key.into(),
        },
        names: names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_names() {
        let found = parse("a.crt,a.key:*.foo.com,foo.com").unwrap();
        assert_eq!(found.files.cert, std::path::Path::new("a.crt"));
        assert_eq!(found.files.key, std::path::Path::new("a.key"));
        assert_eq!(found.names, ["*.foo.com", "foo.com"]);
        assert!(parse("a.crt,a.key").unwrap().names.is_empty());
        for wrong in ["a.crt", "", ",", "a,b,c"] {
            parse(wrong).unwrap_err();
        }
    }
}
