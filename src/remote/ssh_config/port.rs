//! A port as ssh_config and jump hosts write it: a number, or a service of /etc/services.
//!
//! Uses nothing.

use std::sync::OnceLock;

/// A port by its number, or by the name of a service, as OpenSSH's `a2port` takes it.
pub(super) fn port(text: &str) -> Option<u16> {
    match text.parse::<u16>() {
        Ok(port) => Some(port).filter(|port| *port > 0),
        Err(_) => service(services(), text),
    }
}

#[expect(clippy::disallowed_methods, reason = "the laptop's list of services, read once")]
fn services() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| std::fs::read_to_string("/etc/services").unwrap_or_default())
}

/// The TCP port of a service or of its alias, in a text like /etc/services (services(5)).
fn service(text: &str, name: &str) -> Option<u16> {
    text.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (first, place) = (words.next()?, words.next()?);
        let port = place.strip_suffix("/tcp")?;
        (first == name || words.any(|alias| alias == name)).then(|| port.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_the_port_that_the_laptop_knows() {
        let text = "# Network services\nssh\t\t22/tcp\t\t\t# SSH\nsyslog\t514/udp\nhttps 443/tcp www-s web\n";
        assert_eq!((service(text, "ssh"), service(text, "web"), service(text, "syslog")), (Some(22), Some(443), None));
        assert_eq!((port("2222"), port("0"), port("65536"), port("no such service")), (Some(2222), None, None, None));
    }
}
