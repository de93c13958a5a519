#!/bin/sh
# Writes the certificates that test_tls.py uses, each with its key behind it. They are good for nothing else.
set -eu
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

key() { openssl ecparam -name prime256v1 -genkey -noout -out "$folder/$1.key"; }

# authority NAME
authority() {
    key "$1"
    openssl req -x509 -new -key "$folder/$1.key" -subj "/CN=$1" -days 36500 -out "$folder/$1.crt"
}

# leaf NAME AUTHORITY USAGE DAYS
leaf() {
    key "$1"
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=%s\n' "$3" >"$folder/$1.ext"
    openssl req -new -key "$folder/$1.key" -subj "/CN=$1" -out "$folder/$1.csr"
    openssl x509 -req -in "$folder/$1.csr" -CA "$folder/$2.crt" -CAkey "$folder/$2.key" -CAcreateserial -days "$4" \
        -extfile "$folder/$1.ext" -out "$folder/$1.crt"
    cat "$folder/$1.crt" "$folder/$1.key" >"$1.pem"
}

authority authority
authority stranger
cp "$folder/authority.crt" authority.pem
leaf server authority serverAuth 36500
leaf renewed authority serverAuth 36500
leaf client authority clientAuth 36500
leaf expired authority clientAuth -1
leaf foreign stranger clientAuth 36500
