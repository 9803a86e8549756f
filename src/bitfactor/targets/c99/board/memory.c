/* What compilers call for arrays: it counts as the network's. */
void *memset(void *to, int value, unsigned long n);
void *memcpy(void *to, const void *from, unsigned long n);

void *memset(void *to, int value, unsigned long n)
{
    for (volatile char *byte = to; n; n--) *byte++ = (char)value;
    return to;
}

void *memcpy(void *to, const void *from, unsigned long n)
{
    const char *source = from;
    for (volatile char *byte = to; n; n--) *byte++ = *source++;
    return to;
}
