//! Binds the length of an upload to its signature. `object_store` signs any header but the length, so this signs its request again
//! with the length (AWS Signature Version 4, in the query). Without it, a client could fill the storage with one request.

use hmac::{Hmac, KeyInit, Mac};
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderValue, Method, Uri};
use object_store::aws::AwsCredential;
use sha2::{Digest, Sha256};
use std::fmt::Write;

const SIGNATURE: &str = "X-Amz-Signature";
const SIGNED_HEADERS: &str = "X-Amz-SignedHeaders";

/// Adds `length` to the headers, and returns the URL with a signature that covers it. `None` if the URL was signed with another credential.
pub(super) fn sign_length(
    url: &str,
    method: &Method,
    headers: &mut HeaderMap,
    length: u64,
    credential: &AwsCredential,
) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let authority = uri.authority()?;
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    let mut signed = headers.clone();
    signed.insert(HOST, HeaderValue::try_from(authority.as_str()).ok()?);
    let mut lines: Vec<(&str, &str)> = Vec::new();
    for (name, value) in &signed {
        lines.push((name.as_str(), value.to_str().ok()?));
    }
    lines.sort_unstable();
    let names = lines.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");

    // The values are encoded as the signature requires, except for the lists of headers, which is replaced.
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let mut pairs: Vec<(&str, String)> = pairs
        .filter(|(name, _)| ![SIGNATURE, SIGNED_HEADERS].contains(name))
        .map(|(name, value)| (name, value.to_owned()))
        .collect();
    pairs.push((SIGNED_HEADERS, names.replace(';', "%3B")));
    pairs.sort_unstable();
    let value = |name: &str| Some(pairs.iter().find(|(known, _)| *known == name)?.1.as_str());
    let scope = value("X-Amz-Credential")?.replace("%2F", "/");
    let scope = scope.strip_prefix(&credential.key_id)?.strip_prefix('/')?;
    let date = value("X-Amz-Date")?;
    let query = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&");

    let mut request = format!("{method}\n{}\n{query}\n", uri.path());
    for (name, value) in lines {
        let _ = writeln!(request, "{name}:{value}");
    }
    let _ = write!(request, "\n{names}\nUNSIGNED-PAYLOAD");
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(request)));
    let mut key = format!("AWS4{}", credential.secret_key).into_bytes();
    for part in scope.split('/') {
        key = mac(&key, part)?;
    }
    let signature = hex(&mac(&key, &text)?);
    Some(format!("{}://{authority}{}?{query}&{SIGNATURE}={signature}", uri.scheme_str()?, uri.path()))
}

fn mac(key: &[u8], text: &str) -> Option<Vec<u8>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(text.as_bytes());
    Some(mac.finalize().into_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
