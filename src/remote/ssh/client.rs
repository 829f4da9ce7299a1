//! What we answer while russh talks: the host key's verdict from memory, the reason of an end, and no to every channel we did not ask for.
//!
//! Uses `trust`. Runs inside russh's loop, so nothing here waits.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use russh::client::{ChannelOpenHandle, DisconnectReason, Handler, Msg, Session};
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Certificate, HashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{Channel, ChannelId, ChannelOpenFailure};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::remote::RemoteError;
use crate::remote::known_hosts::glob;
use crate::remote::trust::{Answer, Trust};

/// A host key that was accepted although it was not known.
#[derive(Debug, Clone)]
pub(super) struct NewKey {
    pub(super) kind: String,
    pub(super) blob: Vec<u8>,
}

/// What the loop leaves behind for those outside.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Why the connection ended.
    pub(super) why: OnceLock<String>,
    /// The key to note.
    pub(super) new_key: OnceLock<NewKey>,
}

/// Why a handshake failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// russh's own reason.
    Ssh(russh::Error),
    /// The host's key.
    Key(RemoteError),
}

impl From<russh::Error> for Trouble {
    fn from(error: russh::Error) -> Self {
        Trouble::Ssh(error)
    }
}

/// Our side of one connection.
pub(super) struct Client {
    trust: Arc<Trust>,
    left: Arc<Left>,
    refusals: mpsc::Sender<String>,
    /// Cancels `dead` when russh's loop is over, however it ended.
    _dead: DropGuard,
}

impl Client {
    pub(super) fn new(trust: Arc<Trust>, left: Arc<Left>, refusals: mpsc::Sender<String>, dead: CancellationToken) -> Self {
        Client { trust, left, refusals, _dead: dead.drop_guard() }
    }

    fn judge(&self, key: &PublicKey) -> Result<bool, Trouble> {
        let blob = key.to_bytes().map_err(|e| Trouble::Ssh(e.into()))?;
        let kind = key.algorithm().to_string();
        match self.trust.answer(&kind, &blob) {
            Answer::Known => Ok(true),
            Answer::Learn => {
                self.left.new_key.get_or_init(|| NewKey { kind, blob });
                Ok(true)
            }
            Answer::Refuse(error) => Err(Trouble::Key(error)),
        }
    }

    /// Whether an authority that known_hosts names vouches for this host. A certificate that says less than that is judged as a plain key.
    fn vouched(&self, certificate: &Certificate) -> Result<bool, Trouble> {
        let blob = |key: &russh::keys::ssh_key::public::KeyData| PublicKey::from(key.clone()).to_bytes().unwrap_or_default();
        let (authority, own) = (blob(certificate.signature_key()), blob(certificate.public_key()));
        for key in [&authority, &own] {
            if let Some(line) = self.trust.revoked(key) {
                return Err(Trouble::Key(RemoteError::Refused {
                    what: format!("host certificate of {} is revoked by {}:{}", self.trust.host, line.file.display(), line.line),
                    hint: "the host needs a new key and certificate".to_owned(),
                }));
            }
        }
        let trusted = self.trust.authorities().any(|a| a == authority);
        let names = certificate.valid_principals();
        let name = self.trust.policy.principal.as_bytes();
        let named = names.is_empty() || names.iter().any(|p| glob(p.to_ascii_lowercase().as_bytes(), name));
        let host = certificate.cert_type() == CertType::Host && certificate.critical_options().is_empty();
        Ok(trusted && named && host && in_time(certificate))
    }
}

#[expect(clippy::disallowed_methods, reason = "a certificate is valid for a span of real time")]
fn in_time(certificate: &Certificate) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let authority = certificate.signature_key().fingerprint(HashAlg::Sha256);
    certificate.validate_at(now, [&authority]).is_ok()
}

/// An end in words for people.
pub(super) fn words(error: &russh::Error) -> String {
    match error {
        russh::Error::KeepaliveTimeout => "no answer to our keepalives".to_owned(),
        russh::Error::InactivityTimeout => "silence, and nothing could be sent".to_owned(),
        russh::Error::HUP | russh::Error::Disconnect => "closed by the other end".to_owned(),
        russh::Error::IO(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => "closed by the other end".to_owned(),
        russh::Error::IO(e) => super::transport::words(e),
        other => other.to_string(),
    }
}

impl Handler for Client {
    type Error = Trouble;

    async fn check_server_key(&mut self, offered: &PublicKeyOrCertificate) -> Result<bool, Trouble> {
        if let Some(certificate) = offered.certificate()
            && self.vouched(certificate)?
        {
            return Ok(true);
        }
        self.judge(&offered.public_key())
    }

    async fn disconnected(&mut self, reason: DisconnectReason<Trouble>) -> Result<(), Trouble> {
        let why = match reason {
            DisconnectReason::ReceivedDisconnect(info) => format!("the host said: {}", info.message),
            DisconnectReason::Error(Trouble::Ssh(error)) => words(&error),
            DisconnectReason::Error(Trouble::Key(error)) => error.to_string(),
        };
        self.left.why.get_or_init(|| why);
        Ok(())
    }

    async fn channel_open_failure(
        &mut self,
        _: ChannelId,
        _: ChannelOpenFailure,
        description: &str,
        _: &str,
        _: &mut Session,
    ) -> Result<(), Trouble> {
        // A full queue means that nobody asks for reasons.
        self.refusals.try_send(description.to_owned()).or(Ok(()))
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Trouble> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Trouble> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(&mut self, _: Channel<Msg>, _: ChannelOpenHandle, _: &mut Session) -> Result<(), Trouble> {
        Ok(())
    }

    async fn server_channel_open_session(&mut self, _: Channel<Msg>, _: ChannelOpenHandle, _: &mut Session) -> Result<(), Trouble> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Trouble> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Trouble> {
        Ok(())
    }
}
