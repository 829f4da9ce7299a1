//! A jump host as ProxyJump and the inventory write it.

use super::port::parse_port;

/// A jump host as it is written: `[user@]host[:port]`, `[user@][v6]:port` or `ssh://…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JumpHost {
    pub(crate) user: Option<String>,
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
}

impl JumpHost {
    /// Reads one jump host; an error is a fragment.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a jump host ([user@]host[:port])");
        let bare = text.trim();
        let bare = bare.strip_prefix("ssh://").map_or(bare, |b| b.trim_end_matches('/'));
        let (user, place) = bare.rsplit_once('@').map_or((None, bare), |(user, place)| (Some(user.to_owned()), place));
        let (host, given) = match place.strip_prefix('[').and_then(|p| p.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
            None => match place.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') => (host, Some(port)),
                _ => (place, None),
            },
        };
        let port = given.map(|p| parse_port(p).ok_or_else(wrong)).transpose()?;
        if host.is_empty() || host.starts_with('-') || user.as_deref() == Some("") {
            return Err(wrong());
        }
        Ok(JumpHost { user, host: host.to_owned(), port })
    }

    /// Reads the value of `ProxyJump`.
    pub(crate) fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(JumpHost::parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jump_hosts_parse_in_every_form() {
        let jump = |user: Option<&str>, host: &str, port| JumpHost { user: user.map(str::to_owned), host: host.to_owned(), port };
        assert_eq!(JumpHost::parse_list("u@b1:33,b2"), Ok(vec![jump(Some("u"), "b1", Some(33)), jump(None, "b2", None)]));
        assert_eq!(JumpHost::parse("ssh://me@b9:99/"), Ok(jump(Some("me"), "b9", Some(99))));
        assert_eq!(JumpHost::parse("[fd00::1]:22"), Ok(jump(None, "fd00::1", Some(22))));
        assert_eq!(JumpHost::parse("[fd00::1]"), Ok(jump(None, "fd00::1", None)));
        assert_eq!(JumpHost::parse("fd00::1"), Ok(jump(None, "fd00::1", None)));
        assert!(
            JumpHost::parse("b:0").is_err()
                && JumpHost::parse("@b").is_err()
                && JumpHost::parse("[fd00::1]junk").is_err()
                && JumpHost::parse("").is_err()
                && JumpHost::parse("-oX").is_err()
        );
    }
}
