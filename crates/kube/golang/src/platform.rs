//! Go's names of processor architectures (`GOARCH`), which versions, images and node objects use.

/// The name of the architecture that Rust calls `arch`.
pub fn goarch(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        same => same,
    }
}

/// The architecture of this program.
pub fn own_goarch() -> &'static str {
    goarch(std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (ours, expected) in [
            ("x86_64", "amd64"),
            ("aarch64", "arm64"),
            ("s390x", "s390x"),
        ] {
            assert_eq!(goarch(ours), expected);
        }
    }
}
